"""The points of a line, for figures that are not declared yet; `figures.log_points` otherwise."""

from .figures import log_points as points

__all__ = ["points"]
