"""Claims of lens A: exchangeability and latent variables."""
