"""Pages of results folders: of a run, of a replication, and of several runs compared."""

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
from attnlens.report.replication import render_replication

from .ledger import upgraded
from .store.store import Store

REPORT, COMPARISON, REPLICATION = "report.html", "comparison.html", "replication.html"


def write_report(folder: str | os.PathLike[str], store: Store | None = None) -> Path:
    """Write the page of a results folder beside its results, and return its path.

    Only the content of the folder is needed, not the code that measured it. A folder that
    `replicate` wrote gets the page of the replication.

    >>> write_report("no-such-run")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    folder = Path(folder)
    if store is None:
        with Store.reading(folder) as opened, explained_documents(folder):
            return write_report(folder, opened)
    if store.document("replication") is not None:
        page = write_replication(folder, store)
        if store.document("ledger") is None:
            return page
    replace_file(folder / REPORT, render(store))
    return folder / REPORT


def write_replication(folder: Path, store: Store) -> Path:
    """Write the page of the replication that the store holds, and return its path."""
    replace_file(folder / REPLICATION, render_replication(store.document("replication")))
    return folder / REPLICATION


@contextmanager
def explained_documents(*folders: Path) -> Iterator[None]:
    """Turn an error that an invalid document causes into a `BadInput` of one sentence."""
    try:
        yield
    except ExplainedError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,  # a number that no float can hold
        RecursionError,
        jinja2.UndefinedError,
    ) as error:
        names = " or ".join(map(str, folders))
        raise BadInput(
            f"the ledger in {names} is not one that attnlens wrote ({type(error).__name__}); "
            f"`attnlens verify --out DIR` writes it again."
        ) from error


def finished(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger of a run and the content of its page; raises if the run has not finished."""
    ledger, page = store.document("ledger"), store.document("page")
    if ledger is None and store.document("replication") is not None:
        raise BadInput(
            f"{store.folder} holds a replication and not a run; `attnlens verify --out "
            f"{store.folder}` adds the run of its seed range 0 from the stored cells."
        )
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


def write_comparison(*folders: str | os.PathLike[str]) -> Path:
    """Write the comparison of two or more results folders into the last, and return its path.

    All of them must have been written by `attnlens.verify`.

    >>> write_comparison("no-such-run", "nor-this")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    if len(folders) < 2:
        raise BadInput(f"a comparison needs at least two results folders; got {len(folders)}.")
    paths = [Path(folder) for folder in folders]
    runs = []
    with explained_documents(*paths):
        for folder in paths:
            with Store.reading(folder) as store:
                runs.append((str(folder), finished(store)[0]))
        text = render_comparison(runs)
    replace_file(paths[-1] / COMPARISON, text)
    return paths[-1] / COMPARISON
