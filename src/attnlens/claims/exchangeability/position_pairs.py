"""A.position-pairs: an encoder of the BERT kind reads its tokens as a set of (content, position).

Lens A (Zhang et al., 2022): "as is the case in BERT and ViT, input tokens are often exchangeable
since they already include positional encodings" (docs/theory.md, section A(a)). A token is a pair
of a content and a position. With f the mean over tokens of the last layer, the sentence says that
only the set of pairs counts: for every permutation π

    f( (x_π(1), p_π(1)), …, (x_π(L), p_π(L)) ) = f( (x_1, p_1), …, (x_L, p_L) ).

This is an exact check, not evidence. An embedding x + p, attention without a causal mask,
token-wise maps and a mean over tokens consist of sums over tokens. So the equation holds for *all*
weights, up to rounding; the trained weights of a pretrained encoder cannot make it fail. The run
shows that the order has no other path into the encoder as it is computed: no causal mask, no
relative positions, no pooling at the first token. It shows no more than that. Whether the encoder
uses the order at all does depend on the weights, and is measured in the first control: an encoder
that ignores its positions, a bag of words, would pass the check trivially.

The region: ‖f' − f‖/‖f‖ ≤ 1e−5. MiniLM computes in float32, ε = 1.2e−7, and adds rounding errors
of two sums in each of six layers, where layer norms keep numbers of order one; a few ε in total are
expected (5e−7 on the seeds of the pilot). Our own encoder computes in float64, where the deviation
is 3e−16: the bound is ten orders of magnitude larger there, but one bound is used for both
encoders.

Controls: (1) contents are permuted and positions are not. [CLS] and [SEP] stay in place, so that
only the order of the words changes. This control counts as refuted only if the relative change,
averaged over passages, is above 0.05: the order must matter. (2) Pairs are permuted for an encoder
with a causal mask, as in GPT: there the order enters by the mask too. Each control could fail: the
change would be near 0 for a bag of words in (1), and in (2) if heads attended only to their own
token.

A replicate redraws the passage (24 words or more of the descriptions of scikit-learn's data sets)
and the permutation for MiniLM, and the weights, the tokens and the permutation for our encoder,
which is not trained. If the package of MiniLM is not installed, only our own encoder is tested, and
the texts of the claim say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from attnlens import attention
from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Attribution,
    Check,
    Claim,
    Control,
    Meaning,
    Origin,
)
from attnlens.claims.estimates import pooled
from attnlens.claims.exchangeability.statements import EXCHANGEABLE, cite
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region
from attnlens.data.text import words
from attnlens.integrations.transformers import minilm
from attnlens.integrations.transformers.bert import Bert
from attnlens.networks.encoder import Encoder

CONTENT, CAUSAL = "content-alone", "causal"
OURS, MINILM = "our encoder", "MiniLM"
ENCODERS = (OURS, MINILM) if minilm.installed() else (OURS,)
LEFT_OUT = (
    "" if MINILM in ENCODERS else f" MiniLM is left out: {minilm.missing()} is not installed."
)
# In the pilot, the change in the first control was 0.46 ± 0.05 for MiniLM and 0.22 ± 0.11 for our
# encoder (mean and standard deviation). With sixteen replicates, the mean of our encoder is six
# standard errors above 0.05.
BLOCKS = {"smoke": 1, "default": 2, "full": 18}
GRID = Grid(
    settings={
        "moved": "pairs",
        "length": 32,
        "passage_words": 32,  # 32 words have at least 32 word pieces, so a passage has 32 tokens
        "token_dim": 3,
        "width": 16,
        "heads": 4,
        "layers": 2,
        "position_std": 1.0,  # positions have the same order of magnitude as contents
        "causal": False,
    },
    axes={"encoder": ENCODERS},
    arm_settings={
        CONTENT: {"moved": "contents"},
        CAUSAL: {"causal": True, "encoder": (OURS,)},
    },
    blocks={PREDICTION: BLOCKS, CONTENT: BLOCKS, CAUSAL: BLOCKS},
    seeds_per_block=8,
    cost=lambda parameters, seeds: 2.0,
    pilot=range(8),
)
RULE = Rule(
    Quantity(
        "change",
        "largest relative change of the pooled output ({encoder})",
        pooled("change"),
        Region(high=1e-5),
        per=("encoder",),
        where={"moved": "pairs"},
        exact=True,
    ),
    Quantity(  # judged for the first control, in which the order must matter
        "order",
        "mean relative change of the pooled output ({encoder})",
        pooled("change"),
        Region(high=0.05),
        per=("encoder",),
        where={"moved": "contents"},
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The relative change ‖f' − f‖/‖f‖ of the pooled output, one per seed."""
    pool = pooled_by_minilm if parameters["encoder"] == MINILM else pooled_by_ours
    changes = []
    for seed in seeds:
        random = np.random.default_rng([seed, parameters["length"]])
        contents, positions = orders(parameters["moved"], parameters["length"], random)
        at = pool(parameters, seed, random)
        same = np.arange(parameters["length"])
        before, after = at(same, same), at(contents, positions)
        changes.append(np.linalg.norm(after - before) / np.linalg.norm(before))
    return {"change": np.array(changes)}


def orders(moved: str, length: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random order of the contents, and an order of the positions.

    If `moved` is "pairs", the two are equal. If it is "contents", positions keep their order, and
    the first and the last content stay in place: for MiniLM these are [CLS] and [SEP].
    """
    if moved == "pairs":
        order = random.permutation(length)
        return order, order
    inside = 1 + random.permutation(length - 2)
    return np.concatenate([[0], inside, [length - 1]]), np.arange(length)


Pool = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The pooled output for an order of the contents and an order of the positions."""


def pooled_by_minilm(parameters: Mapping[str, Any], seed: int, random: np.random.Generator) -> Pool:
    """The function of MiniLM on a random passage of real text."""
    encoder, length = minilm.load(), parameters["length"]
    passage = _passage(parameters["passage_words"], random)
    numbers = encoder.read([passage], length)[0][0]
    return lambda contents, positions: np.asarray(
        _bert(encoder.model, numbers[contents], positions), float
    )


@eqx.filter_jit
def _bert(model: Bert, numbers: Any, positions: Any) -> Any:
    """The mean of the last layer; token i gets the position vector of positions[i]."""
    moved = eqx.tree_at(lambda m: m.places, model, model.places[positions])
    return jnp.mean(moved.represent(numbers)[-1], 0)


def _passage(count: int, random: np.random.Generator) -> str:
    text = _text()
    start = random.integers(len(text) - count)
    return " ".join(text[start : start + count])


@lru_cache(maxsize=1)
def _text() -> list[str]:
    """The words of the descriptions of scikit-learn's built-in data sets."""
    from sklearn import datasets

    names = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud")
    return [w for name in names for w in words(getattr(datasets, f"load_{name}")().DESCR)]


def pooled_by_ours(parameters: Mapping[str, Any], seed: int, random: np.random.Generator) -> Pool:
    """The function of an untrained encoder with positions on random normal tokens."""
    length = parameters["length"]
    tokens = random.normal(size=(length, parameters["token_dim"]))
    names = ("token_dim", "width", "heads", "layers", "position_std")
    settings = {name: parameters[name] for name in names} | {
        "max_length": length,
        "operator": causal_softmax if parameters["causal"] else "softmax",
    }
    return lambda contents, positions: np.asarray(
        _encode(jax.random.key(seed), tokens[contents], positions, settings), float
    )


@eqx.filter_jit
def _encode(key: Any, tokens: Any, positions: Any, settings: dict[str, Any]) -> Any:
    """The mean representation of the tokens by an encoder with random weights.

    The weights are drawn inside this function, so that an arm is one compiled program.
    """
    encoder = Encoder(key, positions=True, **settings)
    assert encoder.positions is not None  # because of positions=True
    moved = eqx.tree_at(lambda m: m.positions, encoder, encoder.positions[positions])
    return moved.summary(tokens)


def causal_softmax(query: Any, key: Any, value: Any) -> Any:
    """Softmax attention with a causal mask: a token attends to itself and to earlier tokens."""
    seen = jnp.tril(jnp.ones((query.shape[0], key.shape[0]), bool))
    return attention.softmax(query, key, value, mask=seen)


CLAIM = Claim(
    id="A.position-pairs",
    title="Tokens that carry their positions are read as a set",
    statement=(
        "Permuting (content, position) pairs together does not change the pooled output of an "
        "encoder of the BERT kind, pretrained or not: the order of its tokens enters through "
        "their positions alone." + LEFT_OUT
    ),
    formula=(
        r"\left\|f\left((x_{\pi(\ell)},p_{\pi(\ell)})_\ell\right)-f\left((x_\ell,p_\ell)_\ell"
        r"\right)\right\|\;\le\;$change_high\,\left\|f\left((x_\ell,p_\ell)_\ell\right)\right\|"
    ),
    prediction=(
        f"The relative change of the pooled output is $change for every passage and permutation "
        f"({' and '.join(ENCODERS)})." + LEFT_OUT
    ),
    controls={
        CONTENT: Control(
            "Contents are permuted and positions are not: the mean relative change is above "
            "$order_high.",
            quantities=("order",),
        ),
        CAUSAL: Control(
            "Pairs are permuted for an encoder with a causal mask, which reads from left to right.",
            quantities=("change",),
        ),
    },
    assumptions=(
        Assumption(
            "Attention has no mask in time and no relative positions", Check.CONTROL, control=CAUSAL
        ),
        Assumption("The output is pooled by a mean over tokens", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "An encoder without a causal mask may be given its tokens in any order as long as each "
            "keeps its position. The order still matters to it, through the positions: moving the "
            "words alone changes the output."
        ),
        refuted=(
            "The order reaches this encoder by another way than its positions: treat its tokens as "
            "a sequence, not as a set of pairs."
        ),
        undecided="The check did not run: repeat it before treating the tokens as a set.",
    ),
    source=cite("the assumption of exchangeable tokens", "section A(a)"),
    plan=GRID,
    measure=measure,
    judge=RULE,
    attribution=Attribution(Origin.PAPER, EXCHANGEABLE.sentence),
    exact=True,
)
