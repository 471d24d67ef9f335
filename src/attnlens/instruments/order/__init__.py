"""Order: whether the order of tokens matters."""
