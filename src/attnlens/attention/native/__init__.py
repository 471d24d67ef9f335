"""Native (C++) versions of operators, compiled on first use; XLA computes the same without them."""
