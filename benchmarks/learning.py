"""How fast a learning curve is measured, against a joblib loop over scikit-learn's MLPs.

    python -m benchmarks.learning [--rounds 3] [--quick]

4 models × 8 sample sizes × 16 folds, 16 features, 16 hidden units, 600 Adam steps on batches of 32
rows: 512 networks by

    attnlens      attnlens.learning_curve with baseline, known attention, self-attention and two
                  layers of it, one single-threaded process a core
    scikit-learn  joblib.Parallel over MLPRegressor(16 units, Adam, batches of 32), one fit a model,
                  size and fold, on all cores; four plain networks, as scikit-learn has no attention

Both take the same number of Adam steps on batches of 32 for every network. scikit-learn counts
passes, so its number of passes at size n is the steps divided by the batches of a pass. Each peer
runs in a process of its own, rounds take turns, and times are medians; the first run of attnlens in
its process includes compilation and is given apart. scikit-learn's networks are plain ones: like is
compared with like for the baseline and for known attention only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

ROWS, FEATURES, HIDDEN, FOLDS, BATCH = 544, 16, 16, 16, 32
SIZES = (16, 32, 64, 96, 128, 192, 256, 510)
STEPS = 600
BLOCK = len(SIZES) * FOLDS // 2  # networks trained together
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MODELS = ("baseline", "known-attention", "self-attention", "multi-layer")


def data():
    import numpy as np

    random = np.random.default_rng(0)
    tokens = random.normal(size=(ROWS, 4, FEATURES // 4))
    y = tokens[:, 0, 0] * tokens[:, 1, 0] + tokens[:, 2, 1] + 0.1 * random.normal(size=ROWS)
    return tokens, y


def peer_attnlens() -> dict[str, float]:
    """Seconds of the second run of each model (the first compiles), and of all first runs."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    import numpy as np

    from attnlens import learning_curve

    x, y = data()
    found = {"first": 0.0}
    with ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn")) as pool:
        training = {"steps": STEPS, "batch": BATCH, "map": pool.map, "block": BLOCK}
        for name in ("first", *MODELS):
            models = MODELS if name == "first" else (name,)
            start = time.perf_counter()
            learning_curve(
                x, y, models=models, sizes=SIZES, folds=FOLDS, hidden=HIDDEN, attention=np.abs(x),
                training=training,
            )  # fmt: skip
            found[name] = time.perf_counter() - start
    return found


def _one(x, y, train, test, seed):
    import warnings

    from sklearn.neural_network import MLPRegressor

    passes = max(1, round(STEPS / -(-len(train) // BATCH)))
    settings: dict[str, Any] = {
        "hidden_layer_sizes": (HIDDEN,), "solver": "adam", "batch_size": min(BATCH, len(train)),
        "learning_rate_init": 1e-2, "max_iter": passes, "n_iter_no_change": passes + 1,
        "tol": 0.0, "random_state": seed,
    }  # fmt: skip
    network = MLPRegressor(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged, and is not asked to
        network.fit(x[train], y[train])
    return ((network.predict(x[test]) - y[test]) ** 2).mean()


def peer_sklearn(models: int = len(MODELS)) -> dict[str, float]:
    from joblib import Parallel, delayed

    from attnlens.instruments.labelled import folds, labelled

    x, y = data()
    flat, parts = x.reshape(len(x), -1), folds(labelled(x, y), FOLDS, 0)
    work = [
        delayed(_one)(flat, y, fold.train[:size], fold.test, model)
        for model in range(models)
        for fold in parts
        for size in SIZES
    ]
    start = time.perf_counter()
    Parallel(n_jobs=CORES)(work)
    return {"a model": (time.perf_counter() - start) / models}


def peer_sklearn_quick() -> dict[str, float]:
    """One model of four, times four."""
    return peer_sklearn(1)


PEERS = {"attnlens": peer_attnlens, "sklearn": peer_sklearn, "sklearn_quick": peer_sklearn_quick}


def measure(name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.learning", "--peer", name]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a quarter of theirs")
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(PEERS[given.peer]()))
        return
    theirs = "sklearn_quick" if given.quick else "sklearn"
    times: dict[str, list[dict[str, float]]] = {"attnlens": [], theirs: []}
    for _ in range(1 if given.quick else given.rounds):
        for name, rows in times.items():
            rows.append(measure(name))
    ours = {
        name: statistics.median(row[name] for row in times["attnlens"])
        for name in ("first", *MODELS)
    }
    other = statistics.median(row["a model"] for row in times[theirs])
    count, load = len(SIZES) * FOLDS, os.getloadavg()[0]
    print(f"{count} networks a model, {STEPS} steps each, on {CORES} cores; load {load:.1f}")
    print(f"scikit-learn     {other:7.2f} s a plain model")
    for name in MODELS:
        print(f"{name:16} {ours[name]:7.2f} s; scikit-learn's plain one {other / ours[name]:.1f} ×")
    total = sum(ours[name] for name in MODELS)
    print(f"all four         {total:7.2f} s; scikit-learn {len(MODELS) * other / total:.1f} ×")
    print(f"with compilation {ours['first']:7.2f} s")


if __name__ == "__main__":
    main()
