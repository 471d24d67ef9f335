"""`attnlens inspect`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlens.core.checks import BadInput
from attnlens.core.durations import format_duration

from .options import AsJson, PageFolder, Seed, check_out

SECONDS_BETWEEN_LINES = 10.0
LINES = ".txt"  # suffix of a file with one text per line
MOST_TEXT = 2**28  # bytes of such a file; Python needs up to four bytes for a character
OPTIONS = {"text": "--column", "target": "--label"}  # by the role of the column in `read`
FOLDER = "folder"  # --label of images: the class of an image is the name of its folder


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A Hugging Face folder (config, safetensors, tokenizer), or module:function that "
            "returns (function, inputs).",
        ),
    ],
    text: Annotated[
        Path | None, typer.Option(help="Texts: CSV, Parquet, or .txt with one text per line.")
    ] = None,
    column: Annotated[str, typer.Option(help="The column of the file that holds texts.")] = "text",
    images: Annotated[Path | None, typer.Option(help="A folder of images.")] = None,
    sequences: Annotated[
        Path | None, typer.Option(help="Inputs of a function: an NPY file (inputs, tokens, …).")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="The column of labels, for probes of every layer; for images: folder, the name "
            "of the folder that an image is in."
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Measure the heads of these layers only: 1,3,5-7.")
    ] = None,
    rows: Annotated[int, typer.Option(min=2, help="Use at most so many inputs.")] = 480,
    tokens: Annotated[int, typer.Option(min=4, help="Read so many tokens of each text.")] = 128,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: PageFolder = Path("attnlens-inspect"),
) -> None:
    """What does this transformer do, layer by layer and head by head?"""
    check_out(out)
    chosen_layers = None if layers is None else parse_layers(layers)
    inputs, labels = read_inputs(text, column, images, sequences, label, rows, seed)
    sys.path.insert(0, str(Path.cwd()))  # import modules of this folder, as `python -m` does
    from attnlens.advice import inspect as ask
    from attnlens.report import write_inspection

    with _progress() as show:
        settings = {"layers": chosen_layers, "tokens": tokens, "seed": seed}
        result = ask(model, inputs, labels, **settings, progress=show, keep=out)
    page = write_inspection(result, out)
    if as_json:
        print(json.dumps({**result.plain(), "page": str(page)}, indent=2, ensure_ascii=False))
        return
    print(result)
    print(f"\nThe page: {page}")


def parse_layers(text: str) -> list[int]:
    """The layers named by a list of numbers and ranges.

    >>> parse_layers("1,3,5-7")
    [1, 3, 5, 6, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise BadInput(f"--layers must be numbers and ranges, such as 1,3,5-7; got {text!r}.")
        end = int(last) if dash else int(first)
        if end - int(first) > 10_000:
            raise BadInput(f"--layers must name layers of the model; got {text!r}.")
        numbers += range(int(first), end + 1)
    return numbers


def read_inputs(
    text: Path | None,
    column: str,
    images: Path | None,
    sequences: Path | None,
    label: str | None,
    rows: int,
    seed: int,
) -> tuple[Any, Any]:
    """The inputs and labels that the options name, at most `rows` of them; None if not given."""
    sources = [option for option in (text, images, sequences) if option is not None]
    if len(sources) > 1:
        raise BadInput("give one of --text, --images and --sequences, not several.")
    if label is not None and images is not None and label != FOLDER:
        raise BadInput(f"the --label of images must be {FOLDER}; got {label!r}.")
    if label is not None and images is None and (text is None or text.suffix == LINES):
        raise BadInput("--label names a column of the file of --text, a CSV or Parquet file.")
    if images is not None:
        from attnlens.integrations.transformers.image_model import image_files

        files = image_files(images)
        files = [files[i] for i in _some(len(files), rows, seed)]
        return files, None if label is None else [file.parent.name for file in files]
    if sequences is not None:
        array = _array(sequences)
        return (array[_some(len(array), rows, seed)] if array.ndim else array), None
    if text is None:
        return None, None
    if not text.is_file():
        raise BadInput(f"--text must name a file; there is no file {text}.")
    if text.suffix == LINES:
        if (size := text.stat().st_size) > MOST_TEXT:
            raise BadInput(
                f"--text must be at most {MOST_TEXT:,} bytes; {text} has {size:,}; give a part."
            )
        lines = text.read_text("utf-8", errors="replace").splitlines()
        lines = [line for line in lines if line.strip()]
        return [lines[i] for i in _some(len(lines), rows, seed)], None
    from attnlens.data import read
    from attnlens.data.files.columns import WrongColumn

    try:
        loaded = read(text, text=column, target=label, rows=rows, seed=seed)
    except WrongColumn as error:
        raise BadInput(error.sentence(OPTIONS.get(error.role, error.role))) from error
    labels = None if label is None else loaded.y
    if labels is not None and loaded.task == "classification":
        labels = labels.astype(int)
    return list(loaded.texts or loaded.dataset.inputs), labels


def _some(count: int, rows: int, seed: int) -> list[int]:
    """Sorted indices of at most `rows` of `count` inputs, drawn at random without replacement.

    >>> _some(3, 5, 0)
    [0, 1, 2]
    """
    import numpy as np

    if count <= rows:
        return [*range(count)]
    return sorted(np.random.default_rng(seed).choice(count, rows, replace=False).tolist())


def _array(path: Path) -> Any:
    """The array of an NPY file, on disk: only the rows that are used are read."""
    from attnlens.data.files.arrays import open_npy

    if not path.is_file():
        raise BadInput(f"--sequences must name an NPY file; there is no file {path}.")
    array = open_npy(path)
    if array.dtype.kind not in "biuf":
        raise BadInput(f"--sequences must hold numbers; {path} holds {array.dtype}; convert it.")
    return array


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows progress: a bar on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("batches", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines() -> Callable[[int, int], None]:
    started = shown = time.perf_counter()

    def show(done: int, total: int) -> None:
        nonlocal shown
        now = time.perf_counter()
        if now - shown < SECONDS_BETWEEN_LINES:
            return
        shown = now
        left = format_duration((now - started) / done * (total - done))
        print(f"{done} of {total} batches, {left} left", file=sys.stderr, flush=True)

    return show
