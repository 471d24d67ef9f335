"""Small ready-made worlds, one of each kind and setting: contract tests run over all of them."""

from __future__ import annotations

from .base import World
from .gaussian_process import GaussianProcess
from .linear_regression import LinearRegression

EXAMPLES: dict[str, World] = {
    "gaussian-process": GaussianProcess(key_dim=3, temperature=0.5, noise_std=0.3),
    "linear-regression": LinearRegression(key_dim=3, noise_std=0.5),
}
