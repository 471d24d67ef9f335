"""Turn errors in code that the user brings (claims, models) into one sentence.

The sentence names the user's function and the line in which it failed. `sys.exit` in such code is a
failure too: otherwise a command could end with status 0 and without a message. `KeyboardInterrupt`
(Ctrl-C) is raised unchanged.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checks import BadInput, ExplainedError

PACKAGE = Path(__file__).parents[1]
LONGEST_REASON = 200  # at most this many characters of an error message are quoted


@contextmanager
def user_code(what: str, *passing: type[BaseException]) -> Iterator[None]:
    """Turn any error of the user's code into `BadInput`; `what` names the failed step.

    Errors of the types `passing` are raised as they are.

    >>> with user_code("the plan of M.mine"):
    ...     1 / 0  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: the plan of M.mine failed in line 2 of ...
    """
    try:
        yield
    except (ExplainedError, KeyboardInterrupt, GeneratorExit, *passing):
        raise
    except BaseException as error:
        raise BadInput(f"{what} failed{place(error)}: {reason(error)}.") from error


def reason(error: BaseException) -> str:
    """The type and the first line of an error."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}); let it return instead"
    try:
        text = str(error)
    except Exception:  # the user's own exception class cannot be converted to text
        text = ""
    first = (text.strip().splitlines() or [""])[0][:LONGEST_REASON].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def place(error: BaseException) -> str:
    """Where the user's code failed: line, file and function of the innermost frame that is neither
    of this package nor of the interpreter's import system."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" in line {error.lineno} of {Path(error.filename).name}"
    own = [frame for frame in frames if _is_the_users(frame.filename)]
    if not own:
        return ""
    frame = own[-1]
    function = "" if frame.name == "<module>" else f" ({frame.name})"
    return f" in line {frame.lineno} of {Path(frame.filename).name}{function}"


def _is_the_users(file: str) -> bool:
    if file[:7] == "<frozen":
        return False
    path = Path(file)
    installed = "site-packages" in path.parts or "importlib" in path.parts
    return not installed and PACKAGE not in path.parents
