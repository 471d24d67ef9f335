"""Transfer: whether a pretrained representation is useful for another task."""
