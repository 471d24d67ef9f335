"""Results as tidy frames of pandas, polars or pyarrow, and as tables in HTML.

frame     makes a frame from rows; only the library that is used for it is imported
Tabular   adds `to_frame()` and a display for notebooks to a record that lists its rows
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from .checks import BadInput, ExplainedError, one_of

Frames = Literal["pandas", "polars", "pyarrow"]
FRAMES: tuple[Frames, ...] = ("pandas", "pyarrow", "polars")  # the first that is installed is used
Kind = type[str] | type[float] | type[int] | type[bool]
MOST_ROWS = 60  # a notebook shows at most this many rows of a table


def frame_library(frames: str | None = None) -> str:
    """The library to use: `frames`, or the first of `FRAMES` that is installed."""
    if frames is not None:
        one_of("frames", frames, FRAMES)
    libraries = FRAMES if frames is None else (frames,)
    for name in libraries:
        if importlib.util.find_spec(name) is not None:
            return name
    raise BadInput(
        f"a frame needs {' or '.join(libraries)}, which is not installed; install it with `pip "
        f"install {libraries[0]}`."
    )


def frame(
    rows: Sequence[Mapping[str, Any]],
    frames: str | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> Any:
    """A frame with one row per mapping; `kinds` has the type of each column, by name.

    Without `kinds`, the columns are those of the rows, in the order of their first appearance, and
    their types are those of the values. A missing number becomes the library's NaN or null.

    >>> frame([{"name": "a", "value": 1.5}, {"name": "b", "value": None}], "pyarrow").num_rows
    2
    """
    kinds = column_kinds(rows) if kinds is None else kinds
    return frame_of_columns(
        {name: [row.get(name) for row in rows] for name in kinds}, kinds, frames
    )


def frame_of_columns(
    columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind], frames: str | None = None
) -> Any:
    """A frame from the values of each column and their types."""
    import narwhals

    types = {
        str: narwhals.String(),
        float: narwhals.Float64(),
        int: narwhals.Int64(),
        bool: narwhals.Boolean(),
    }
    name = frame_library(frames)
    data = {
        column: list(map(_converters[kinds[column]], values)) for column, values in columns.items()
    }
    schema = {column: types[kind] for column, kind in kinds.items()}
    return _from_dict(data, schema, name).to_native()


def _from_dict(data: dict[str, list[Any]], schema: dict[str, Any], name: str) -> Any:
    import narwhals

    if "backend" in narwhals.from_dict.__annotations__:
        return narwhals.from_dict(data, schema, backend=name)  # pyright: ignore[reportArgumentType] (the name of an installed library)
    # narwhals before 1.26
    native: dict[str, Any] = {"native_namespace": importlib.import_module(name)}
    return narwhals.from_dict(data, schema, **native)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


_converters: dict[Kind, Any] = {str: _text, float: _number, int: int, bool: bool}


def column_kinds(rows: Iterable[Mapping[str, Any]]) -> dict[str, Kind]:
    """The type of each column; a column with numbers and missing values has floats.

    >>> column_kinds([{"n": 1, "x": 1, "name": "a"}, {"n": 2, "x": None, "name": None}])
    {'n': <class 'int'>, 'x': <class 'float'>, 'name': <class 'str'>}
    """
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name in row:
            values.setdefault(name, [])
    for row in rows:
        for name, column in values.items():
            column.append(row.get(name))
    return {name: _kind(column) for name, column in values.items()}


def _kind(values: Sequence[Any]) -> Kind:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return bool if len(known) == len(values) else str
    if known and all(isinstance(value, Integral) for value in known) and len(known) == len(values):
        return int
    return float if all(isinstance(value, Real) for value in known) else str


class Tabular:
    """A record that lists its `rows`: plain mappings with one name per column.

    >>> class Pair(Tabular):
    ...     def rows(self):
    ...         return [{"name": "a", "value": 1.0}, {"name": "<b>", "value": 2.0}]
    >>> Pair().to_frame("pyarrow").column_names
    ['name', 'value']
    >>> "&lt;b&gt;" in Pair()._repr_html_()
    True
    """

    __slots__: ClassVar[tuple[str, ...]] = ()

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `to_frame` as plain data."""
        raise NotImplementedError

    def drawings(self) -> Sequence[Any]:
        """The drawing records that a notebook shows below the table."""
        figure = getattr(type(self), "figure", None)
        return () if figure is None else (figure(self),)

    def to_frame(self, frames: Frames | None = None) -> Any:
        """The rows as a frame of "pandas", "polars" or "pyarrow"; by default the first of pandas,
        pyarrow and polars that is installed."""
        return frame(self.rows(), frames)

    def _repr_html_(self) -> str:
        """What a notebook shows: the table and, if there is one, the figure. Text is escaped."""
        try:
            pictures = [inline_svg(record.plot()) for record in self.drawings()]
        except ExplainedError:  # the record has no figure, such as a density that was not computed
            pictures = []
        return "\n".join([html_table(self.rows()), *pictures])


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as an HTML table, with all text escaped; the middle of a long table is left out.

    >>> html_table([{"a&b": 0.5}])
    '<table><thead><tr><th>a&amp;b</th></tr></thead><tbody><tr><td>0.5</td></tr></tbody></table>'
    """
    names = list(column_kinds(rows))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    shown = [[_shown(row.get(name)) for name in names] for row in rows]
    if len(shown) > MOST_ROWS:
        half = MOST_ROWS // 2
        shown = [*shown[:half], ["…"] * len(names), *shown[-half:]]
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in shown
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if isinstance(value, Real) and not isinstance(value, Integral):
        return "–" if math.isnan(value) else f"{float(value):.4g}"
    return "–" if value is None else str(value)


def inline_svg(canvas: Any) -> str:
    """A matplotlib figure as an SVG element, without the XML declaration."""
    text = io.StringIO()
    canvas.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
