"""BibTeX entries: the papers of the lenses, the tool, and one run with its hash and date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlens import __version__
from attnlens.report.latex import escape_latex

PAPERS = r"""@misc{zhang2022attention,
  author = {Zhang, Yufeng and Liu, Boyi and Cai, Qi and Wang, Lingxiao and Wang, Zhaoran},
  title = {An Analysis of Attention via the Lens of Exchangeability and Latent Variable Models},
  year = {2022},
  eprint = {2212.14852},
  archiveprefix = {arXiv},
}

@unpublished{anonymous2021attention,
  author = {{Anonymous}},
  title = {Analyzing Attention Mechanisms through Lens of Sample Complexity and Loss Landscape},
  year = {2021},
  note = {Submission to the International Conference on Learning Representations, OpenReview
    8KhxoxKP3iL},
}
"""
LATER = r"""@article{zhang2024trained,
  author = {Zhang, Ruiqi and Frei, Spencer and Bartlett, Peter L.},
  title = {Trained Transformers Learn Linear Models In-Context},
  journal = {Journal of Machine Learning Research},
  volume = {25},
  number = {49},
  pages = {1--55},
  year = {2024},
}

@misc{song2024unraveling,
  author = {Song, Bingqing and Han, Boran and Zhang, Shuai and Ding, Jie and Hong, Mingyi},
  title = {Unraveling the Gradient Descent Dynamics of Transformers},
  year = {2024},
  eprint = {2411.07538},
  archiveprefix = {arXiv},
}

@misc{barnfield2025sparse,
  author = {Barnfield, Nicholas and Cui, Hugo and Lu, Yue M.},
  title = {High-Dimensional Analysis of Single-Layer Attention for Sparse-Token Classification},
  year = {2025},
  eprint = {2509.25153},
  archiveprefix = {arXiv},
}

@misc{bohbot2025token,
  author = {Bohbot, L{\'e}a and Letrouit, Cyril and Peyr{\'e}, Gabriel and Vialard,
    Fran{\c c}ois-Xavier},
  title = {Token Sample Complexity of Attention},
  year = {2025},
  eprint = {2512.10656},
  archiveprefix = {arXiv},
}
"""


def bibtex(ledger: Mapping[str, Any]) -> str:
    """The entries for a run: papers, the version of attnlens that judged it, and the run itself.

    >>> "@misc{attnlens-run-01ab," in bibtex({"hash": "01ab", "profile": "smoke"})
    True
    """
    version = escape_latex(str(ledger.get("attnlens") or __version__))
    digest = ledger.get("hash")
    profile = escape_latex(str(ledger.get("profile", "unknown")))
    date = _date(ledger)
    key = "attnlens-run" if digest is None else f"attnlens-run-{_key(str(digest))}"
    named = "without a recorded hash" if digest is None else f"hash {escape_latex(str(digest))}"
    year = f"\n  year = {{{date[:4]}}}," if date else ""
    finished = f", finished {date}" if date else ""
    tool = f"""@misc{{attnlens,
  author = {{{{The attnlens developers}}}},
  title = {{attnlens: what an attention layer has inferred, from how many samples, on what loss
    surface}},
  version = {{{version}}},
}}
"""
    run = f"""@misc{{{key},
  key = {{attnlens run}},
  title = {{A run of attnlens {version}, profile {profile}}},{year}
  note = {{Run {named}{finished}}},
}}
"""
    letters = {lens["letter"] for lens in ledger.get("lenses", ())}
    own = [PAPERS, LATER] if "C" in letters else [PAPERS]
    others = [lens for lens in ledger.get("lenses", ()) if lens["package"] != "attnlens"]
    return "\n".join([*own, *map(_paper, others), tool, run])


def _paper(lens: Mapping[str, Any]) -> str:
    """The paper of a lens that another package provides."""
    paper = lens["paper"]
    authors = " and ".join(escape_latex(str(author)) for author in paper["authors"])
    return f"""@misc{{{_key(str(lens["package"]))},
  author = {{{authors}}},
  title = {{{{{escape_latex(str(paper["title"]))}}}}},
  year = {{{escape_latex(str(paper["year"]))}}},
  note = {{{escape_latex(str(paper["identifier"]))}}},
}}
"""


def _date(ledger: Mapping[str, Any]) -> str:
    """The day on which the run finished, as YYYY-MM-DD; empty if it is not recorded."""
    machine = ledger.get("machine")
    text = str(machine.get("finished", ""))[:10] if isinstance(machine, Mapping) else ""
    valid = len(text) == 10 and all(c.isascii() and (c.isdigit() or c == "-") for c in text)
    return text if valid else ""


def _key(text: str) -> str:
    """The characters of a text that the key of an entry may have."""
    return "".join(c for c in text if c.isascii() and c.isalnum())
