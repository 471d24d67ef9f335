"""Claims of lens A (Zhang et al., 2022): exchangeability and latent variables."""
