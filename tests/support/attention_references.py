"""Simple and slow reference versions of the operators in NumPy and SciPy, in float64."""

import numpy as np
import scipy.linalg

EPSILON = float(np.finfo(np.float64).eps)


def squared_distance(q, k):
    return float(np.sum((q - k) ** 2))


KERNELS = {
    "rbf": lambda q, k, t: np.exp(-squared_distance(q, k) / (2 * t)),
    "laplace": lambda q, k, t: np.exp(-np.sqrt(squared_distance(q, k) / t)),
    "matern32": lambda q, k, t: (
        (1 + np.sqrt(3 * squared_distance(q, k) / t))
        * np.exp(-np.sqrt(3 * squared_distance(q, k) / t))
    ),
    "matern52": lambda q, k, t: (
        (1 + np.sqrt(5 * squared_distance(q, k) / t) + 5 * squared_distance(q, k) / (3 * t))
        * np.exp(-np.sqrt(5 * squared_distance(q, k) / t))
    ),
    "linear": lambda q, k, t: float(q @ k) / t,
    "polynomial": lambda q, k, t: (1 + float(q @ k) / t) ** 2,
}


def gram(kernel, left, right, temperature):
    kappa = KERNELS[kernel]
    return np.array([[kappa(q, k, temperature) for k in right] for q in left]).reshape(
        len(left), len(right)
    )


def normalised(logits, value, mask):
    """Weighted means of the values with softmax weights over the unmasked tokens of each row; zeros
    if all are masked."""
    output = np.zeros((logits.shape[0], value.shape[1]))
    for i, row in enumerate(logits):
        seen = mask[i]
        if seen.any():
            weights = np.exp(row[seen] - row[seen].max())
            output[i] = weights @ value[seen] / weights.sum()
    return output


def softmax(query, key, value, temperature, mask=None, bias=0.0):
    logits = np.asarray(query) @ np.asarray(key).T / temperature + bias
    mask = np.ones(logits.shape, bool) if mask is None else np.broadcast_to(mask, logits.shape)
    return normalised(logits, np.asarray(value), mask)


def cme(query, key, value, temperature, ridge, kernel="rbf"):
    """(mean, variance, condition number of the matrix), by the Cholesky solve of SciPy."""
    query, key, value = map(np.asarray, (query, key, value))
    matrix = gram(kernel, key, key, temperature) + ridge * np.eye(len(key))
    cross = gram(kernel, query, key, temperature)
    factor = scipy.linalg.cho_factor(matrix, lower=True)
    prior = np.array([KERNELS[kernel](q, q, temperature) for q in query])
    var = prior - np.sum(cross * scipy.linalg.cho_solve(factor, cross.T).T, -1)
    mean = cross @ scipy.linalg.cho_solve(factor, value)
    return mean, np.maximum(var, 0)[:, None], np.linalg.cond(matrix)
