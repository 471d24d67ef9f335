"""Engines compute cells: an engine takes cells and yields their outcomes as they finish."""
