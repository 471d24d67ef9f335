"""Inference: how far the answers of attention are from the exact posterior's answers."""
