"""Transfer: whether a representation transfers to another task."""
