"""The claims of lenses A and B by id, and all installed lenses.

To add a claim to lens A or B, write its file, then add its line here. Other packages add lenses
with claims of their own through entry points (`attnlens.core.plugins`); the lenses of attnlens are
loaded in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from attnlens import __version__
from attnlens.core import plugins
from attnlens.core.checks import BadInput, ExplainedError
from attnlens.core.notices import print_notice
from attnlens.core.plugins import Plugin

from .claim import Claim
from .lens import InstalledLens, Lens

CLAIMS: dict[str, str] = {
    "A.exchangeable": "attnlens.claims.exchangeability.exchangeable:CLAIM",
    "A.position-pairs": "attnlens.claims.exchangeability.position_pairs:CLAIM",
    "A.sufficient": "attnlens.claims.exchangeability.sufficient:CLAIM",
    "A.minimal": "attnlens.claims.exchangeability.minimal:CLAIM",
    "A.size-free": "attnlens.claims.exchangeability.size_free:CLAIM",
    "A.cme-is-posterior": "attnlens.claims.exchangeability.cme_is_posterior:CLAIM",
    "A.weights-are-posterior": "attnlens.claims.exchangeability.weights_are_posterior:CLAIM",
    "A.softmax-smoothed": "attnlens.claims.exchangeability.softmax_smoothed:CLAIM",
    "A.softmax-shrinking": "attnlens.claims.exchangeability.softmax_shrinking:CLAIM",
    "A.cme-rate": "attnlens.claims.exchangeability.cme_rate:CLAIM",
    "A.efficiency": "attnlens.claims.exchangeability.efficiency:CLAIM",
    "A.same-limit": "attnlens.claims.exchangeability.same_limit:CLAIM",
    "A.desired-parameter": "attnlens.claims.exchangeability.desired_parameter:CLAIM",
    "A.trained-approaches-bayes": "attnlens.claims.exchangeability.trained_approaches_bayes:CLAIM",
    "A.trained-efficiency": "attnlens.claims.exchangeability.trained_efficiency:CLAIM",
    "A.heads": "attnlens.claims.exchangeability.heads:CLAIM",
    "A.generalisation-samples": "attnlens.claims.exchangeability.generalisation_samples:CLAIM",
    "A.generalisation-length": "attnlens.claims.exchangeability.generalisation_length:CLAIM",
    "A.approximation": "attnlens.claims.exchangeability.approximation:CLAIM",
    "A.optimisation": "attnlens.claims.exchangeability.optimisation:CLAIM",
    "A.self-supervised": "attnlens.claims.exchangeability.self_supervised:CLAIM",
    "A.learned-representation": "attnlens.claims.exchangeability.learned_representation:CLAIM",
    "A.condition-number": "attnlens.claims.exchangeability.condition_number:CLAIM",
    "B.known-attention": "attnlens.claims.sample_complexity.known_attention:CLAIM",
    "B.self-attention": "attnlens.claims.sample_complexity.self_attention:CLAIM",
    "B.multi-layer": "attnlens.claims.sample_complexity.multi_layer:CLAIM",
    "B.misspecified": "attnlens.claims.sample_complexity.misspecified:CLAIM",
    "B.global-attention": "attnlens.claims.sample_complexity.global_attention:CLAIM",
    "B.stationary-points": "attnlens.claims.sample_complexity.stationary_points:CLAIM",
    "B.spurious-minima": "attnlens.claims.sample_complexity.spurious_minima:CLAIM",
    "B.population-landscape": "attnlens.claims.sample_complexity.population_landscape:CLAIM",
    "B.restarts": "attnlens.claims.sample_complexity.restarts:CLAIM",
    "B.consistency": "attnlens.claims.sample_complexity.consistency:CLAIM",
    "B.flatness": "attnlens.claims.sample_complexity.flatness:CLAIM",
    "B.softplus": "attnlens.claims.sample_complexity.softplus:CLAIM",
    "B.softplus-distance": "attnlens.claims.sample_complexity.softplus_distance:CLAIM",
    "B.sub-gaussian": "attnlens.claims.sample_complexity.sub_gaussian:CLAIM",
    "B.guideline-sparsity": "attnlens.claims.sample_complexity.guideline_sparsity:CLAIM",
    "B.guideline-low-rank": "attnlens.claims.sample_complexity.guideline_low_rank:CLAIM",
    "B.noisy-images": "attnlens.claims.sample_complexity.noisy_images:CLAIM",
    "B.reviews": "attnlens.claims.sample_complexity.reviews:CLAIM",
}
"""Claims of lenses A and B by id, as "module:NAME"; in the order of the ledger. Other lenses
declare theirs themselves: `lenses()` has all."""


# The lenses of attnlens, as in its entry points. They are also listed here because a source tree
# that is not installed has no entry points.
BUILT_IN = {
    "A": "attnlens.claims.exchangeability:LENS",
    "B": "attnlens.claims.sample_complexity:LENS",
    "C": "attnlens.claims.later_theory:LENS",
}


@cache
def lenses() -> dict[str, InstalledLens]:
    """Every lens of attnlens and of other installed packages, by letter.

    A lens that cannot be loaded is left out, and a line on standard error says so.

    >>> [lens.name for lens, *_ in lenses().values()][:2]
    ['exchangeability and latent variables', 'sample complexity and the loss landscape']
    """
    loaded = {plugin: plugins.load(plugin, Lens) for plugin in plugins.unique(_declared())}
    installed: dict[str, InstalledLens] = {}
    for plugin, lens in loaded.items():
        if lens is not None and lens.letter != plugin.name:
            print_notice(f"{plugin} is left out: its letter is {lens.letter!r}, not its name")
        elif lens is not None:
            installed[lens.letter] = InstalledLens(lens, plugin.package, plugin.version)
    return dict(sorted(installed.items()))


def providers(letters: Iterable[str]) -> dict[str, str]:
    """The names and versions of the packages that provide the lenses with these letters.

    None of these packages is imported.

    >>> list(providers(["A", "B"]))
    ['attnlens']
    """
    names = set(letters)
    provided = plugins.unique(_declared(), notice=lambda _: None)
    return {plugin.package: plugin.version for plugin in provided if plugin.name in names}


def declared_letters() -> set[str]:
    """The letters of all declared lenses; no lens is imported.

    >>> declared_letters() >= {"A", "B"}
    True
    """
    return {plugin.name for plugin in _declared()}


def _declared() -> list[Plugin]:
    """Every declared lens; those of attnlens come first, so that their letters are taken."""
    entries = plugins.installed(plugins.LENSES)
    present = {plugin.name for plugin in entries if plugin.package == "attnlens"}
    absent = [
        Plugin(plugins.LENSES, letter, path, "attnlens", __version__)
        for letter, path in BUILT_IN.items()
        if letter not in present
    ]
    return absent + entries


def find(names: Sequence[str] | None = None) -> list[Claim]:
    """The claims with these ids, in the order of the ledger; all claims if no name is given.

    A name may also be "module:NAME": a claim of your own in a module that Python can import.

    >>> [claim.id for claim in find(["A.cme-rate", "A.heads"])]
    ['A.cme-rate', 'A.heads']
    """
    if not names:
        return [claim for letter in lenses() for claim in _claims_of(letter)]
    own = [name for name in names if re.fullmatch(r"[\w.]+:\w+", name)]
    others = {
        name: (path, package)
        for lens, package, _ in (lenses().values() if set(names) - {*CLAIMS, *own} else ())
        for name, path in lens.claims.items()
    }
    known = {**{name: (path, "attnlens") for name, path in CLAIMS.items()}, **others}
    unknown = [name for name in names if name not in known and name not in own]
    if unknown:
        raise BadInput(
            f"there is no claim {unknown[0]!r}; the claims are {', '.join(known)}, and one of "
            f"your own is named module:NAME."
        )
    listed = [
        _load(path, name, package) for name, (path, package) in known.items() if name in names
    ]
    return listed + [_load(path) for path in dict.fromkeys(own)]


def _claims_of(letter: str) -> list[Claim]:
    """The claims of a lens; claims of another package that cannot be loaded are left out."""
    lens, package, _ = lenses()[letter]
    claims = []
    for name, path in lens.claims.items():
        try:
            claims.append(_load(path, name, package))
        except ExplainedError as error:
            if package == "attnlens":
                raise
            print_notice(
                f"the claim {name} of the package {package} is left out: {str(error).rstrip('.')}"
            )
    return claims


def _load(path: str, name: str = "", package: str = "attnlens") -> Claim:
    """The claim at "module:NAME".

    `name` is the id that the claim must have, if a lens lists it; `package` provides that lens.
    """
    if package == "attnlens":
        claim = plugins.import_name(path, f"the claim {path!r}")
    else:
        with plugins.quiet_import(package):
            claim = plugins.import_name(path, f"the claim {path!r}")
    if not isinstance(claim, Claim):
        raise BadInput(f"{path!r} must be an attnlens Claim; got {type(claim).__name__}.")
    if name and claim.id != name:
        raise BadInput(f"the claim {path!r} must have the id {name}; got {claim.id!r}.")
    return claim
