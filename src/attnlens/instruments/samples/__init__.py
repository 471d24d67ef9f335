"""Samples: how many samples an error needs."""
