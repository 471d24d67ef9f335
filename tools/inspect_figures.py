"""The figures of the page about `attnlens inspect`, from stored results.

    python tools/inspect_figures.py keep NAME RESULT    -> docs/runs/inspect.json

NAME is minilm or decoder. RESULT is what `attnlens inspect … --json` printed. The build of the site
draws the figures (`site_stored.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlens.core.drawing import Figure, Map, View
from attnlens.core.inspections import Measure
from attnlens.core.serialise import reading_from_plain

RUN = Path(__file__).parent.parent / "docs" / "runs" / "inspect.json"
LAYERS = ("order", "probe error")  # measures drawn over depth; others are maps of heads
DRAWN = {
    "minilm": ("order", "share of tokens used", "probe error"),
    "decoder": ("induction",),
}
TITLES = {"minilm": "MiniLM on film reviews", "decoder": "a decoder built by hand"}


def keep(name: str, result: Path, run: Path = RUN) -> None:
    """Store the measures that the page draws, with the summary and the facts."""
    inspection = json.loads(result.read_text("utf-8"))
    measures = {
        m["name"]: {key: m[key] for key in ("layers", "by_layer", "by_head")}
        for m in inspection["measures"]
        if m["name"] in DRAWN[name]
    }
    for m in measures.values():
        m["by_head"] = [[round(r["value"], 4) for r in row] for row in m["by_head"]]
    stored = json.loads(run.read_text("utf-8")) if run.exists() else {}
    stored[name] = {
        "summary": inspection["summary"],
        "facts": inspection["facts"],
        "measures": measures,
    }
    run.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")


def figures(run: Path = RUN) -> dict[str, View]:
    """The figures by name, such as `inspect.minilm-order`."""
    views: dict[str, View] = {}
    for name, part in json.loads(run.read_text("utf-8")).items():
        for key, measure in part["measures"].items():
            view = over_depth(key, measure) if key in LAYERS else by_head(name, key, measure)
            views[f"inspect.{name}-{key.split()[0]}"] = view
    return views


def over_depth(name: str, stored: Mapping[str, Any]) -> Figure:
    readings = tuple(map(reading_from_plain, stored["by_layer"]))
    return Measure(name, "", tuple(stored["layers"]), readings).figure()


def by_head(model: str, name: str, stored: Mapping[str, Any]) -> Map:
    rows = tuple(map(tuple, stored["by_head"]))
    heads, layers = range(1, len(rows[0]) + 1), stored["layers"]
    title = f"{name[:1].upper()}{name[1:]}, {TITLES[model]}"
    names = tuple(map(str, heads)), tuple(map(str, layers))
    return Map(title, "head", "layer", (("", rows),), *names)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", name, result]:
            keep(name, Path(result))
        case _:
            raise SystemExit(__doc__)
