"""Results on disk: `results.sqlite`, its schema, and its maintenance."""
