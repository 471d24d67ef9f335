"""A.weights-are-posterior: with a finite latent, the softmax weights are its exact posterior.

Our formalisation of statement (b) of lens A (Zhang et al., 2022) in a case where it is an identity
(docs/theory.md, prediction 2). Let z ∈ {1 … C} have prior π and let
log p(x | z) = ⟨T(x), η_z⟩ + (a term common to all classes). The prototypes η are the keys, the
query is the *sum* of the statistics of the tokens (not their mean), the temperature is 1 (not √d),
and log π is the bias. Then

    weights = softmax_c( ⟨Σ T(x_ℓ), η_c⟩ + log π_c ) = P(z = c | x¹ … x^L).

Normal tokens: T(x) = (x, 1), η_c = (μ_c/σ², −‖μ_c‖²/2σ²). One-hot tokens: T(x) = x, η_c = log p_c.

Log-odds are compared, because at large L all probabilities but one underflow, which would hide any
error. The weights of the operator would underflow too, so it is called with query and bias at the
temperature t = max(1, spread/600), where spread is the range of the log posterior: t·log(w_c/w_C)
is then the log-odds, and no weight is below e^(−600). The reference is independent: SciPy computes
log densities token by token, and they are added without rounding (math.fsum). The two results may
differ by

    10 ε·( Σ_ℓ max_c |log p(x_ℓ | c)| + max_c Σ_j |q_j η_cj| + max_c |log π_c| + t )

(ε is the rounding unit). The terms are for the rounding of each log density, of the dot products,
of the bias, and of t times the logarithm of a weight; each needs a few operations, hence the
factor 10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.attention.softmax import softmax
from attnlens.claims.cells import Measured, example, stacked
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import pooled
from attnlens.claims.exchangeability.statements import INFERENCE, cite
from attnlens.claims.figures import RoundingErrors
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.worlds import FiniteMixture

CONTROL = "no-prior"
EPSILON = float(np.finfo(float).eps)
GRID = Grid(
    settings={
        # Three classes that one or two tokens cannot distinguish, and a skewed prior: without the
        # log prior the log-odds are wrong by log 16 and log 3.
        "prior": [0.8, 0.15, 0.05],
        "means": [[-0.4, 0.0], [0.4, 0.1], [0.0, 0.5]],
        "noise_std": 1.2,
        "probabilities": [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]],
        "bias": "log prior",
        "largest_spread": 600,  # maximal range of the log posterior divided by the temperature
        "rounding_factor": 10,  # the factor 10 of the bound in the module's docstring
        "example_length": 256,  # length of the sequence in the figure; every profile has it
        "example_tokens": 64,  # the figure shows this number of tokens of that sequence
    },
    axes={
        "tokens": ("normal", "one-hot"),
        "length": {
            "smoke": (1, 256),
            "default": (1, 16, 256, 4096),
            "full": (1, 16, 256, 4096, 65536),
        },
    },
    arm_settings={CONTROL: {"bias": "none"}},
    blocks={PREDICTION: 1, CONTROL: 1},
    seeds_per_block={"smoke": 1, "default": 4, "full": 36},
    cost=lambda parameters, seeds: 0.1 + 1e-5 * parameters["length"],
)
RULE = Rule(
    Quantity(
        "share",
        "largest error of the log-odds over the rounding bound ({tokens} tokens)",
        pooled("share"),
        Region(high=1.0),
        per=("tokens",),
        exact=True,
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest error of the log-odds, divided by its rounding bound, one per seed."""
    values = stacked([measure_seed(parameters, seed) for seed in seeds])
    normal = arm == PREDICTION and parameters["tokens"] == "normal"
    if normal and parameters["length"] == parameters["example_length"] and 0 in seeds:
        values["example"] = _posterior_path(parameters, seeds[0])
    return values


def _posterior_path(parameters: Mapping[str, Any], seed: int) -> np.ndarray:
    """P(z = c | first n tokens) for one sequence and n = 0 … example_tokens, (n, class)."""
    tokens = _tokens(parameters, seed)[: parameters["example_tokens"]]
    logs = np.vstack([np.log(parameters["prior"]), _log_likelihoods(parameters, tokens)])
    sums = np.cumsum(logs, axis=0)
    weights = np.exp(sums - sums.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _tokens(parameters: Mapping[str, Any], seed: int) -> np.ndarray:
    names = {"normal": ("means", "noise_std"), "one-hot": ("probabilities",)}[parameters["tokens"]]
    settings = {name: parameters[name] for name in names}
    world = FiniteMixture(weights=parameters["prior"], **settings)
    key = jax.random.fold_in(jax.random.key(seed), parameters["length"])
    return np.asarray(world.sample(key, parameters["length"]).tokens)


def measure_seed(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    tokens = _tokens(parameters, seed)
    log_likelihood = _log_likelihoods(parameters, tokens)  # (L, C)
    log_prior = np.log(parameters["prior"])
    exact = np.array(
        [math.fsum((*row, p)) for row, p in zip(log_likelihood.T, log_prior, strict=True)]
    )

    if parameters["tokens"] == "normal":
        means = np.array(parameters["means"])
        statistics = np.column_stack([tokens, np.ones(len(tokens))])
        keys = np.column_stack([means, -0.5 * (means**2).sum(-1)]) / parameters["noise_std"] ** 2
    else:
        statistics, keys = tokens, np.log(parameters["probabilities"])
    query = np.array([math.fsum(column) for column in statistics.T])
    temperature = max(1.0, float(np.ptp(exact)) / parameters["largest_spread"])
    bias = log_prior if parameters["bias"] == "log prior" else np.zeros(len(log_prior))
    weights = softmax(
        jnp.asarray(query)[None],
        jnp.asarray(keys),
        jnp.eye(len(log_prior)),
        temperature=jnp.asarray(temperature),
        bias=jnp.asarray(bias / temperature)[None],
    )[0]
    log_odds = temperature * (np.log(weights[:-1]) - np.log(weights[-1]))
    error = float(np.abs(log_odds - (exact[:-1] - exact[-1])).max())
    terms = (
        np.abs(log_likelihood).max(-1).sum()
        + (np.abs(keys) @ np.abs(query)).max()
        + np.abs(log_prior).max()
        + temperature
    )
    allowed = parameters["rounding_factor"] * EPSILON * float(terms)
    return {"share": error / allowed, "error": error, "allowed": allowed}


def _log_likelihoods(parameters: Mapping[str, Any], tokens: np.ndarray) -> np.ndarray:
    """log p(x | c) for every token x and class c, computed with SciPy."""
    import scipy.stats  # takes 1.8 s to load and is used only here

    if parameters["tokens"] == "normal":
        means, variance = parameters["means"], parameters["noise_std"] ** 2
        covariance: Any = variance * np.eye(len(means[0]))
        rows = [scipy.stats.multivariate_normal.logpdf(tokens, mean, covariance) for mean in means]
    else:
        classes = parameters["probabilities"]
        rows = [scipy.stats.multinomial.logpmf(tokens, 1, row) for row in classes]
    return np.column_stack([np.atleast_1d(row) for row in rows])


FIGURE = RoundingErrors(
    "Distance between softmax attention's log-odds and the exact posterior's",
    "tokens",
    {PREDICTION: "{} tokens", CONTROL: "{}, prior left out"},
    least=EPSILON,
)


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """A figure of the posterior after the first n tokens of one sequence, as a function of n."""
    posteriors = example(arms[PREDICTION], "example")
    if posteriors is None:
        return []
    series = [
        Series(
            f"class {c + 1} (prior {prior:g})",
            tuple(Point(float(n), float(p)) for n, p in enumerate(posteriors[:, c])),
            curve=True,
        )
        for c, prior in enumerate(arms[PREDICTION][0].parameters["prior"])
    ]
    title = "Posterior after the first n tokens of one sequence"
    return [Figure(title, "tokens", "P(class | tokens)", tuple(series), log_x=False, log_y=False)]


CLAIM = Claim(
    id="A.weights-are-posterior",
    title="Softmax weights are the posterior of a finite latent",
    statement=(
        "With class prototypes as keys, the sum of the statistics of the tokens as query and the "
        "log prior as bias, the weights of softmax attention are the exact posterior of the class."
    ),
    formula=(
        r"\mathrm{softmax}_c\left(\left\langle \sum_\ell T(x_\ell),\,\eta_c\right\rangle"
        r"+\log\pi_c\right) = P\left(z=c\mid x_1,\dots,x_L\right)"
    ),
    prediction=(
        "The log-odds agree with those from the log densities of SciPy to rounding error "
        "($rounding_factor ε times the sum of the terms), at every L = $length."
    ),
    controls={CONTROL: Control("The log prior is left out of the bias, and the prior is skewed.")},
    assumptions=(
        Assumption(
            "The latent is one of finitely many classes, and tokens are independent given it",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The log-likelihood of a token is linear in its statistics: an exponential family",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The query is the sum over tokens, not their mean, so that it depends on the length",
            Check.BY_CONSTRUCTION,
        ),
    ),
    meaning=Meaning(
        supported=(
            "One softmax head can classify exactly by Bayes' rule if its query is the sum of the "
            "tokens. A head that averages them loses the information how certain the class is."
        ),
        refuted=(
            "The weights differed from the posterior by more than rounding: do not read them as "
            "probabilities of classes before the difference is explained."
        ),
        undecided=(
            "Some lengths have no result: read the weights as probabilities of classes only at the "
            "lengths that were computed."
        ),
    ),
    source=cite("statement (b)", "prediction 2 (identity)"),
    attribution=INFERENCE,
    plan=GRID,
    measure=measure,
    judge=RULE,
    exact=True,
    figure=FIGURE,
    views=views,
)
