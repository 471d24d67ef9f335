"""PyTorch modules as JAX functions, and their losses with derivatives computed by PyTorch."""
