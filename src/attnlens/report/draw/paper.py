"""Figures for papers: drawn by matplotlib, as wide as a column, without a title.

The caption of the paper takes the place of the title. Files of equal figures are equal.
"""

from __future__ import annotations

import io
import textwrap
from typing import Any

from attnlens.core.drawing import Map, View

COLUMN = 3.4  # inches: the width of a column of most two-column journals
FIGURE_FORMATS = ("pdf", "svg", "png")
FONT = 8.0  # points
LETTER = 0.062  # inches: the mean width of a letter of the legend
LINE = 0.135  # inches: the height of a line of the legend
STYLE: dict[Any, Any] = {
    "font.size": FONT,
    "axes.titlesize": FONT,
    "legend.fontsize": FONT - 1,
    "xtick.labelsize": FONT - 1,
    "ytick.labelsize": FONT - 1,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3 fonts
    "svg.hashsalt": "attnlens",  # equal figures have equal files
}
# Files have no creation time, so that equal figures have equal files.
METADATA = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


def paper_figure(record: View, file_format: str, width: float = COLUMN) -> bytes:
    """The content of a file with the figure, drawn `width` inches wide."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        canvas = record.plot()
        canvas.suptitle("")
        if not isinstance(record, Map):  # the panels of a map keep their names
            canvas.axes[0].set_title("")
        _fit(canvas, width)
        file = io.BytesIO()
        canvas.savefig(file, format=file_format, dpi=300, metadata=METADATA[file_format])
    return file.getvalue()


def _fit(canvas: Any, width: float) -> None:
    """Scale the figure to `width`, and wrap the entries of its legend to fit below it."""
    old_width, old_height = canvas.get_size_inches()
    lines = 0
    for legend in list(canvas.legends):
        legend.remove()
        handles, labels = canvas.axes[0].get_legend_handles_labels()
        letters = max(10, int((width - 0.5) / LETTER))
        labels = [textwrap.fill(label, letters) for label in labels]
        lines += sum(label.count("\n") + 1 for label in labels)
        canvas.legend(handles, labels, loc="outside lower center", ncols=1, fontsize=FONT - 1)
    canvas.set_size_inches(width, width * old_height / old_width + lines * LINE)
