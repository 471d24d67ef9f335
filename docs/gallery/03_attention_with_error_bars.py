"""Attention with error bars.

Conditional-mean-embedding attention divides by the keys' covariance where softmax, and every
other normalised kernel, divides by a row sum. With the noise variance as its ridge it is the
exact posterior mean of a Gaussian process, at any number of tokens, and it also returns the
posterior variance.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

from attnlens.attention import cme, kernel
from attnlens.worlds import GaussianProcess

world = GaussianProcess(key_dim=1, temperature=0.05, noise_std=0.2, keys="box")
tokens = world.sample(jax.random.key(3), length=24).tokens
line = jnp.linspace(-1, 1, 200)
fit = cme(line[:, None], *tokens, ridge=0.2**2, temperature=0.05, variance=True)
exact = world.predict(tokens, line[:, None])
print("largest difference to the exact posterior mean:", float(abs(fit.mean - exact.mean).max()))

mean, std = fit.mean[:, 0], jnp.sqrt(fit.var[:, 0])
smooth = kernel(line[:, None], *tokens, temperature=0.05)
figure, axes = plt.subplots()
axes.plot(tokens.key[:, 0], tokens.value[:, 0], "k.", label="tokens")
axes.plot(line, mean, label="CME attention")
axes.fill_between(line, mean - 2 * std, mean + 2 * std, alpha=0.2, label="± 2 deviations")
axes.plot(line, smooth[:, 0], "--", label="normalised kernel attention")
axes.set(xlabel="key and query", ylabel="value", title="Two estimates from 24 tokens")
axes.legend()
figure.savefig("posterior.svg")
