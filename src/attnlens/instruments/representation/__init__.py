"""Representation: what a representation has lost, and what it contains in excess."""
