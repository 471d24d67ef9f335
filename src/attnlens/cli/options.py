"""Options that several commands share, each declared once. An option of one command is declared in
the file of that command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from attnlens.core.checks import SEEDS, BadInput

if TYPE_CHECKING:
    from attnlens.data import Loaded

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit statuses

File = Annotated[Path, typer.Argument(help="CSV, Parquet, NPZ or NPY, or a folder of IDX files.")]
ResultsFolder = Annotated[Path, typer.Argument(help="A folder that `verify` wrote.")]
Seed = Annotated[int, typer.Option(min=0, max=SEEDS - 1, help="The random seed.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print the evidence beside each answer.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PageFolder = Annotated[Path, typer.Option("--out", help="Folder for the page.")]
Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster, host:port; by default the one that runs here."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes; by default one per core.")
]
TimeLimit = Annotated[
    float | None, typer.Option(help="Seconds that a cell may take before it is stopped.")
]
WorkerMemory = Annotated[
    float | None,
    typer.Option("--memory-limit", help="GB of memory that a worker may use; more fails its cell."),
]


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


CellEngine = Annotated[
    EngineName, typer.Option("--engine", help="Where cells run: this machine, or a Ray cluster.")
]


@dataclass(frozen=True)
class FileOptions:
    """Options for reading a file: each field becomes an option of every command that reads one."""

    text: Annotated[str | None, typer.Option(help="The column that holds text.")] = None
    id: Annotated[
        str | None, typer.Option(help="The column of a long table that tells sequences apart.")
    ] = None
    order: Annotated[
        str | None, typer.Option(help="The column of a long table that orders its rows.")
    ] = None
    column: Annotated[
        list[str] | None, typer.Option(help="Use this column only (may be repeated).")
    ] = None
    drop: Annotated[
        list[str] | None, typer.Option(help="Leave this column out (may be repeated).")
    ] = None
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="COLUMN=number, category, date, text or drop, where the guess is wrong.",
        ),
    ] = None
    missing: Annotated[str, typer.Option(help="fill missing values, or drop their rows.")] = "fill"
    images: Annotated[
        int | None, typer.Option(min=1, help="Cut images into patches of this size.")
    ] = None
    rows: Annotated[
        int,
        typer.Option(
            min=1, help="Use at most so many rows (long table: sequences), drawn at random."
        ),
    ] = 50_000
    seed: Seed = 0
    separator: Annotated[
        str | None,
        typer.Option(help="Between fields of a CSV file, if the guess is wrong: ';', tab."),
    ] = None
    decimal: Annotated[
        str | None, typer.Option(help="Decimal mark of a CSV file, if the guess is wrong: , or .")
    ] = None
    copies: Annotated[
        str, typer.Option(help="keep rows that occur several times, or drop copies.")
    ] = "keep"
    memory_limit: Annotated[
        float, typer.Option(help="GB of memory that the rows that are read may take.")
    ] = 1.0

    def read(self, file: Path, target: str | None = None) -> Loaded:
        """Read the file with these options; returns the result of `attnlens.data.read`."""
        from attnlens.data import read

        return read(
            file,
            target=target,
            text=self.text,
            id=self.id,
            order=self.order,
            columns=self.column or None,
            drop=self.drop or (),
            types=parse_types(self.types),
            missing=self.missing,
            images=self.images,
            rows=self.rows,
            seed=self.seed,
            separator=self.separator,
            decimal=self.decimal,
            copies=self.copies,
            memory_limit=self.memory_limit * 1e9,
        )


def with_file_options(
    leave_out: Collection[str] = (), **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command: its parameter `reading` becomes an option per field of `FileOptions`.

    leave_out  fields that are no options of this command
    defaults   defaults of options, where they differ from those of the fields
    """
    types = get_type_hints(FileOptions, include_extras=True)
    options = {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(field.name, field.default),
            annotation=types[field.name],
        )
        for field in fields(FileOptions)
        if field.name not in leave_out
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*places: Any, **arguments: Any) -> None:
            settings = {name: arguments.pop(name, kind.default) for name, kind in options.items()}
            command(*places, reading=FileOptions(**settings), **arguments)

        signature = inspect.signature(command, eval_str=True)
        parameters = list(signature.parameters.values())
        place = list(signature.parameters).index("reading")
        parameters[place : place + 1] = options.values()
        setattr(run, "__signature__", signature.replace(parameters=parameters))  # noqa: B010 (functions have no such field to type)
        return run

    return decorate


def parse_types(values: list[str] | None) -> dict[str, Any]:
    """Column → kind, from texts COLUMN=KIND; raises `BadInput` for other texts."""
    kinds = {}
    for item in values or ():
        name, equals, kind = item.rpartition("=")
        if not equals or not name:
            raise BadInput(f"--type must be COLUMN=KIND, such as age=number; got {item!r}.")
        kinds[name] = kind
    return kinds


def check_out(out: Path) -> None:
    """Raise `BadInput` where `--out` is a file, before anything is computed."""
    try:
        if out.exists() and not out.is_dir():
            raise BadInput(f"--out must name a folder; {out} is a file; name another.")
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"--out cannot be used ({reason}); name another folder.") from error


def use_compilation_cache() -> None:
    """Use the cache of compiled programs on disk; must be called before JAX is imported."""
    import os

    from attnlens.runs.engines import cache

    os.environ.update(cache.settings(cache.usable_folder()))
