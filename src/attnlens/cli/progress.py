"""The progress of a run on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attnlens.core.durations import format_duration
from attnlens.runs.compute import RunProgress

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def reporter() -> Iterator[Callable[[RunProgress], None]]:
    """Yield a function that shows progress: a bar on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Callable[[RunProgress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} {task.fields[left]}"),
    )
    started, first = time.perf_counter(), None
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, rate="", left="")

        def show(progress: RunProgress) -> None:
            nonlocal first
            first = progress.done if first is None else first
            seconds = time.perf_counter() - started
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                description=progress.cell.claim if progress.cell else "starting workers",
                rate=f"{(progress.done - first) / seconds:.1f} cells/s",
                left=""
                if progress.seconds_left is None
                else f"{format_duration(progress.seconds_left)} left",
            )

        yield show


def _lines() -> Callable[[RunProgress], None]:
    started = time.perf_counter()
    shown: float | None = None  # seconds from the start to the last line; None: no line yet
    first: int | None = None

    def show(progress: RunProgress) -> None:
        nonlocal shown, first
        first = progress.done if first is None else first
        now = time.perf_counter() - started
        recent = shown is not None and now - shown < SECONDS_BETWEEN_LINES
        if recent and progress.done < progress.total:
            return
        shown = now
        rate = (progress.done - first) / now if now > 0 else 0
        left = (
            ""
            if progress.seconds_left is None
            else f", {format_duration(progress.seconds_left)} left"
        )
        line = f"{progress.done} of {progress.total} cells, {rate:.1f} cells/s{left}"
        print(line, file=sys.stderr, flush=True)

    return show
