"""Inference: what attention has inferred, and how far it is from the exact answer."""
