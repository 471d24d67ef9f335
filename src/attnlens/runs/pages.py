"""Pages of results folders: `report.html` of one folder, `comparison.html` of two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2

from attnlens.core.checks import BadInput, ExplainedError
from attnlens.core.files import replace_file
from attnlens.report.comparison import render_comparison
from attnlens.report.page import render_documents

from .ledger import upgraded
from .store.store import Store

REPORT, COMPARISON = "report.html", "comparison.html"


def write_report(folder: str | os.PathLike[str], store: Store | None = None) -> Path:
    """Write the page of a results folder beside its results, and return its path.

    Only the content of the folder is needed, not the code that measured it.

    >>> write_report("no-such-run")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    folder = Path(folder)
    if store is None:
        with Store.reading(folder) as opened, explained_documents(folder):
            return write_report(folder, opened)
    replace_file(folder / REPORT, render(store))
    return folder / REPORT


@contextmanager
def explained_documents(*folders: Path) -> Iterator[None]:
    """Turn the error of a page from documents of an unknown form into one sentence."""
    try:
        yield
    except ExplainedError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, jinja2.UndefinedError) as error:
        names = " or ".join(map(str, folders))
        raise BadInput(
            f"the ledger in {names} is not one that attnlens wrote ({type(error).__name__}); "
            f"`attnlens verify --out DIR` writes it again."
        ) from error


def finished(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger of a run and the content of its page; raises if the run has not finished."""
    ledger, page = store.document("ledger"), store.document("page")
    if ledger is None or page is None:
        raise BadInput(
            f"{store.folder} holds an unfinished run without verdicts; finish it with `attnlens "
            f"verify --out {store.folder}`, then ask for the report."
        )
    return upgraded(ledger), page


def render(store: Store) -> str:
    """The page of a finished run as text.

    >>> with Store.reading(Path("no-such-run")) as store:  # doctest: +ELLIPSIS
    ...     page = render(store)
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    return render_documents(*finished(store), store.failures(), None, store.faults())


def write_comparison(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> Path:
    """Write the comparison of two results folders into the second, and return its path.

    Both folders must have been written by `attnlens.verify`.

    >>> write_comparison("no-such-run", "nor-this")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    runs = []
    with explained_documents(Path(first), Path(second)):
        for folder in (Path(first), Path(second)):
            with Store.reading(folder) as store:
                runs.append((str(folder), finished(store)[0]))
        text = render_comparison(runs)
    replace_file(Path(second) / COMPARISON, text)
    return Path(second) / COMPARISON
