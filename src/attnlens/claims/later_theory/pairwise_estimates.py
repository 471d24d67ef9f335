"""Estimates of an interaction g(x, x') = f(F_d(x · A x')) from samples of tokens and values.

`least_squares` estimates f by its first K cosines, and A, if it is not given, together with them:
by Gauss–Newton steps over rotations, A ← A e^W with W antisymmetric, from few cosines to many. The
start is the orthogonal matrix nearest to the linear regression of y_i on x_i ⊗ mean_j x_j, whose
coefficients are a multiple of A. Few cosines first, because the error of A must be small compared
with the wavelength of the last cosine.

`rows` selects the observed values, in the order of samples and tokens; all by default.

`nearest` knows nothing of the form of g and estimates it by the mean of nearest neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve, expm
from scipy.spatial import KDTree
from scipy.special import betainc, gammaln

# Numbers of cosines of the Gauss–Newton steps. Steps with 2 cosines move A most (pilot).
COSINES = (2, 2, 2, 4, 4, 8, 8, 16, 16, 32, 64, 128, 256)
PAIRS = 16_384  # pairs that are evaluated at once: temporaries stay in the cache of a core
ALL = slice(None)
NEIGHBOURS = (1, 2, 4, 8, 16)


class Places:
    """s = F_d(u) for all pairs of tokens, one row per value; with the derivative of F_d.

    inputs  (samples, tokens, token_dim)
    matrix  A, an orthogonal matrix
    """

    def __init__(self, inputs: np.ndarray, matrix: np.ndarray):
        samples, tokens, dim = inputs.shape
        self.others = ~np.eye(tokens, dtype=bool)
        self.turned = inputs @ matrix
        products = (self.turned @ np.swapaxes(inputs, 1, 2))[:, self.others]
        self.products = np.clip(products, -1, 1).reshape(samples * tokens, tokens - 1)
        self.place = distribution(self.products, dim)
        self.dim = dim

    def chunks(self) -> Iterator[slice]:
        rows = max(1, PAIRS // self.place.shape[1])
        return (slice(i, i + rows) for i in range(0, len(self.place), rows))

    def features(self, count: int) -> np.ndarray:
        """The mean over j of √2 cos(π k s_ij): one row per value, one column per k ≤ `count`."""
        features = np.empty((len(self.place), count))
        for rows in self.chunks():
            for k, cosine in enumerate(multiples(self.place[rows], count)):
                features[rows, k] = cosine.mean(1)
        return np.sqrt(2) * features

    def slope(self, coefficients: np.ndarray) -> np.ndarray:
        """dφ/du of all pairs, φ = f ∘ F_d with these coefficients: (samples, tokens, tokens)."""
        slope = np.empty_like(self.place)
        for rows in self.chunks():
            slope[rows] = derivative(coefficients, self.place[rows])
        slope *= density(self.products, self.dim)
        samples, tokens = self.turned.shape[:2]
        full = np.zeros((samples, tokens, tokens))
        full[:, self.others] = slope.reshape(samples, -1)
        return full


def distribution(product: np.ndarray, dim: int) -> np.ndarray:
    """F_d, the distribution function of one coordinate of a point on the sphere in R^d."""
    share = (1 + product) / 2
    return share if dim == 3 else betainc((dim - 1) / 2, (dim - 1) / 2, share)


def density(product: np.ndarray, dim: int) -> np.ndarray:
    """The derivative of F_d."""
    half = (dim - 1) / 2
    scale = np.exp(gammaln(2 * half) - 2 * gammaln(half)) / 2
    return scale * ((1 - product**2) / 4) ** (half - 1)


def multiples(place: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """cos(π k s) for k = 1 … count, by the recurrence cos (k + 1) θ = 2 cos θ cos k θ − cos (k −
    1) θ."""
    first = np.cos(np.pi * place)
    before, now, double = np.ones_like(first), first, 2 * first
    for _ in range(count):
        yield now
        before, now = now, double * now - before


def values(coefficients: np.ndarray, place: np.ndarray) -> np.ndarray:
    """f(s) = Σ c_k √2 cos(π k s) at every s in the vector `place`."""
    result = np.zeros_like(place)
    for start in range(0, len(place), PAIRS):
        rows = slice(start, start + PAIRS)
        for coefficient, cosine in zip(
            coefficients, multiples(place[rows], len(coefficients)), strict=True
        ):
            result[rows] += coefficient * cosine
    return np.sqrt(2) * result


def derivative(coefficients: np.ndarray, place: np.ndarray) -> np.ndarray:
    """f'(s) = −Σ c_k √2 π k sin(π k s)."""
    angle = np.pi * place
    before, now, double = np.zeros_like(angle), np.sin(angle), 2 * np.cos(angle)
    total = np.zeros_like(angle)
    for k, coefficient in enumerate(coefficients, 1):
        total -= coefficient * k * now
        before, now = now, double * now - before
    return np.sqrt(2) * np.pi * total


def solve(features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares by normal equations, with a ridge of 1e−9 of the diagonal against rounding."""
    gram = features.T @ features
    gram[np.diag_indices_from(gram)] *= 1 + 1e-9
    return cho_solve(cho_factor(gram), features.T @ target)


def linear_start(inputs: np.ndarray, target: np.ndarray, rows: slice = ALL) -> np.ndarray:
    """The orthogonal matrix nearest to the linear regression on x_i ⊗ mean_j x_j."""
    samples, tokens, dim = inputs.shape
    others = (inputs.sum(1, keepdims=True) - inputs) / (tokens - 1)
    outer = np.einsum("mia,mib->miab", inputs, others).reshape(samples * tokens, dim * dim)
    left, _, right = np.linalg.svd(solve(outer[rows], target).reshape(dim, dim))
    return left @ right


def step(
    inputs: np.ndarray, target: np.ndarray, matrix: np.ndarray, cosines: int, rows: slice = ALL
) -> np.ndarray:
    """One Gauss–Newton step for A, jointly with the coefficients of the first cosines.

    For A e^W the product u_ij moves by (Aᵀ x_i)ᵀ W x_j, which is linear in W.
    """
    places = Places(inputs, matrix)
    features = places.features(cosines)
    slope = places.slope(solve(features[rows], target))
    dim, pulled = inputs.shape[2], slope @ inputs / (inputs.shape[1] - 1)
    a, b = np.triu_indices(dim, 1)
    turned = places.turned
    moves = turned[..., a] * pulled[..., b] - turned[..., b] * pulled[..., a]
    moves = moves.reshape(len(features), -1)
    angles = solve(np.hstack([features, moves])[rows], target)[cosines:]
    generator = np.zeros((dim, dim))
    generator[a, b] = angles
    return matrix @ expm(generator - generator.T)


def learned_matrix(
    inputs: np.ndarray, target: np.ndarray, cosines: int, rows: slice = ALL
) -> np.ndarray:
    """A, estimated together with the first `cosines` cosines of f."""
    matrix = linear_start(inputs, target, rows)
    for count in (*[few for few in COSINES if 2 * few <= cosines], cosines):
        matrix = step(inputs, target, matrix, count, rows)
    return matrix


def least_squares(
    inputs: np.ndarray, target: np.ndarray, matrix: np.ndarray, cosines: int, rows: slice = ALL
) -> np.ndarray:
    """The coefficients of the first cosines of f, given A."""
    return solve(Places(inputs, matrix).features(cosines)[rows], target)


def nearest(pairs: np.ndarray, target: np.ndarray, at: np.ndarray, truth: np.ndarray) -> float:
    """The mean squared error of the mean of nearest neighbours, for the best number of neighbours.

    pairs, target  the observed pairs of tokens (x, x'), (n, 2 d), and their values
    at, truth      new pairs, and the interaction there
    """
    neighbours = np.asarray(KDTree(pairs).query(at, k=max(NEIGHBOURS))[1])
    means = (target[neighbours[:, :count]].mean(1) for count in NEIGHBOURS)
    return float(min(np.mean((mean - truth) ** 2) for mean in means))
