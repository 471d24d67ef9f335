"""Samples: learning curves, and how many samples a given error needs."""
