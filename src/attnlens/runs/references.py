"""Reference posteriors as cells: an engine computes them once, and the store keeps them.

    parameters   {"world": name, "settings": {…}, "length": L, "queries": Q, "nuts": {…}}
    seeds        one episode per seed, all of them in one vmapped run of NUTS
    values       per episode: the drawn latent, mean and covariance of the posterior, mean, variance
                 and Monte Carlo error of the predictions (at the queries, or of the next token),
                 R-hat, effective sample size, divergences, E-BFMI; for the check by tempered
                 particles (`worlds.second_opinion`): effective particles, and gaps to the posterior

`world` is a name in `EXAMPLES`, or "package.module:Name" of a world or of a class, which is called
with `settings`. If a check of one episode fails, the whole cell fails with the reason: the store
never recomputes a finished cell, so a partly wrong reference would stay there.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from attnlens.core import checks
from attnlens.core.cells import Cell
from attnlens.worlds.base import Episode
from attnlens.worlds.installed import installed_worlds
from attnlens.worlds.model import ReferenceWorld, SampledPosterior
from attnlens.worlds.nuts import Nuts, flatten
from attnlens.worlds.registry import EXAMPLES

ARM = "reference"
MEASURE = "attnlens.runs.references:measure"


class NotConverged(RuntimeError):
    """A reference posterior failed its convergence checks; the message has the diagnostics."""


def cells(
    world: str,
    lengths: Sequence[int],
    seeds: Sequence[int],
    *,
    code: str,
    settings: Mapping[str, Any] | None = None,
    queries: int = 8,
    nuts: Mapping[str, Any] | None = None,
    together: int = 64,
    claim: str = "worlds.reference",
) -> list[Cell]:
    """Cells for reference posteriors of `world`: per length, one cell per `together` seeds.

    `code` is the version of the source behind them: `attnlens.runs.code_version.code_version` of
    this module, or of the user's own module if the world is the user's.

    >>> [cell.seeds for cell in cells("logistic-regression", [8], [1, 2, 3], code="", together=2)]
    [(1, 2), (3,)]
    """
    example = find(world, settings or {})
    replace(example.nuts, nuts or {})  # raises where a setting is unknown or invalid
    checks.whole("together", together, at_least=1)
    blocks = [tuple(seeds[i : i + together]) for i in range(0, len(seeds), together)]
    return [
        Cell(
            claim=claim,
            arm=ARM,
            measure=MEASURE,
            parameters={
                "world": world,
                "settings": dict(settings or {}),
                "length": checks.whole("length", length),
                "queries": checks.whole("queries", queries),
                "nuts": dict(nuts or {}),
            },
            seeds=block,
            code=code,
            cost=30.0,
        )
        for length in lengths
        for block in blocks
    ]


def measure(
    arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]
) -> Mapping[str, np.ndarray]:
    """Reference posteriors of the episodes that `seeds` draw, in float64 (module docstring)."""
    checks.one_of("arm", arm, [ARM])
    world = find(parameters["world"], parameters.get("settings", {}))
    nuts = replace(world.nuts, parameters.get("nuts", {}))
    world = eqx.tree_at(lambda w: w.nuts, world, nuts, is_leaf=lambda x: isinstance(x, Nuts))
    with jax.enable_x64(True):
        arrays = run(world, jnp.asarray(seeds), parameters["length"], parameters.get("queries", 8))
        values = {name: np.asarray(value) for name, value in arrays.items()}
    failed = ~values.pop("ok")
    if failed.any():
        raise NotConverged(
            f"{failed.sum()} of {len(failed)} reference posteriors have not converged (seed "
            f"{list(seeds)[int(np.argmax(failed))]}; largest split R-hat "
            f"{values['r_hat'].max():.3f}, smallest effective sample size "
            f"{values['effective'].min():.0f}, most divergences {values['divergences'].max()}, "
            f"smallest E-BFMI {values['energy'].min():.2f}, largest gap to the second opinion "
            f"{values['gap'].max():.2f}); the `reason` of that posterior says what to change."
        )
    return values


@eqx.filter_jit
def run(
    world: ReferenceWorld, seeds: Int[Array, " episodes"], length: int, queries: int
) -> dict[str, Array]:
    """Episodes and their posteriors, vmapped over seeds in one compiled program."""

    def one(seed: Int[Array, ""]) -> dict[str, Array]:
        episode = world.sample(jax.random.key(seed), length, queries)
        return _row(world, episode, world.posterior(episode.tokens))

    return jax.vmap(one)(seeds)


def _row(world: ReferenceWorld, episode: Episode, posterior: SampledPosterior) -> dict[str, Array]:
    law = world.predictive(posterior, episode.query)
    lead = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None, None], episode.latent)
    row = {
        "latent": flatten(lead)[0, 0],
        "mean": posterior.mean,
        "covariance": posterior.cov,
        "prediction": law.mean,
        "prediction_var": law.var,
        "prediction_error": law.error,
        "r_hat": posterior.r_hat,
        "effective": posterior.effective,
        "divergences": posterior.divergences,
        "energy": posterior.energy,
        "particles": posterior.opinion.effective,
        "gap": posterior.opinion.gap,
        "ok": posterior.ok,
    }
    return row if episode.answer is None else {**row, "answer": episode.answer}


def find(name: str, settings: Mapping[str, Any]) -> ReferenceWorld:
    """The world with this name, or built by the class with this name from `settings`."""
    worlds = EXAMPLES if name in EXAMPLES or ":" in name else installed_worlds()
    world: Any = worlds.get(name)
    if world is None:
        module, _, attribute = name.partition(":")
        try:
            world = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError):
            raise checks.BadInput(
                f"world must be one of {', '.join(_known())}, or 'package.module:Name'; got "
                f"{name!r}, which cannot be imported."
            ) from None
    if isinstance(world, type):
        world = world(**settings)
    elif settings:
        raise checks.BadInput(
            f"settings are for a class, but {name!r} is a finished world; give its class as "
            f"'package.module:Name', or leave out settings."
        )
    if not isinstance(world, ReferenceWorld):
        raise checks.BadInput(
            f"reference cells are for worlds without a closed form, such as "
            f"{', '.join(_known())}; got {name!r}, which has exact posteriors of its own."
        )
    return world


def replace(nuts: Nuts, changes: Mapping[str, Any]) -> Nuts:
    """A copy of the settings `nuts` with some of them changed."""
    fields = {field.name: getattr(nuts, field.name) for field in dataclasses.fields(nuts)}
    for name in changes:
        checks.one_of("each setting of nuts", name, fields)
    return Nuts(**{**fields, **changes})


def _known() -> list[str]:
    return [name for name, world in installed_worlds().items() if isinstance(world, ReferenceWorld)]
