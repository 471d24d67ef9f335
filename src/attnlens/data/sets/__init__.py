"""Built-in data sets; nothing is downloaded."""
