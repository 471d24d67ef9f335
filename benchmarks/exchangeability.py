"""The exchangeability test against its peers: level, power and speed in one run.

    python -m benchmarks.exchangeability [--mapie PYTHON] [--trials 400] [--rounds 5] [--quick]

    attnlens       `exchangeability`: several statistics in one exact permutation test
    mapie          MAPIE's PValuePermutationTest, the token as y, x constant: the largest difference
                   of mean scores over all splits
    scipy, halves  SciPy's permutation_test, vectorised: difference of the halves' means
    scipy, plain   the same with a statistic written for one sample, SciPy's default
    scipy, lag     vectorised, with the lag-one autocorrelation, a statistic that *knows* what to
                   look for in autoregressive tokens: a bound to compare with, blind to all else

Level and power: shares of sequences (64 tokens, one at a time) rejected at 0.05 with 199
permutations; correlated with the one before, drifting, and with a second half of another scale.
Speed: 999 permutations, of one sequence and of 64 sequences, which the peers take one by one (they
are timed on a few, and that is scaled up). Peers run in processes of their own, one thread each;
MAPIE may live in another environment, --mapie names its Python. Rounds take turns, and medians are
reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

LENGTH, LEVEL, POWER_ORDERS, SPEED_ORDERS, BATCH = 64, 0.05, 199, 999, 64
STRENGTHS = {
    "autoregressive": (0.0, 0.2, 0.4, 0.6),  # correlation with the token before
    "drift": (1.0, 2.0, 3.0),  # change over the sequence, in noise deviations
    "scale": (1.5, 2.0, 3.0),  # standard deviation of the second half over the first
}
ROOT = Path(__file__).parent.parent
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
# Sequences of the 64 that are timed.
TIMED = {"attnlens": BATCH, "mapie": 1, "scipy, halves": 8, "scipy, plain": 4, "scipy, lag": 8}
ONLY_TIMED = "scipy, plain"  # its p-values are those of the vectorised one
Test = Callable[[np.ndarray, int, int], float]


def draw(kind: str, strength: float, trials: int) -> np.ndarray:
    """(trials, length) tokens."""
    x = np.random.default_rng([trials, int(100 * strength), len(kind)]).normal(
        size=(trials, LENGTH)
    )
    if kind == "autoregressive":
        for i in range(1, LENGTH):
            x[:, i] = strength * x[:, i - 1] + (1 - strength**2) ** 0.5 * x[:, i]
    elif kind == "drift":
        x += strength * np.linspace(-0.5, 0.5, LENGTH)
    else:
        x[:, LENGTH // 2 :] *= strength
    return x


# -- contenders: p-value of one sequence -----------------------------------------------------------


def attnlens_test() -> Test:
    from attnlens import exchangeability

    def test(x: np.ndarray, orders: int, seed: int) -> float:
        return exchangeability(x, permutations=orders, wealth=False, seed=seed).value

    return test


def mapie_test() -> Test:
    from mapie.exchangeability_testing import (  # pyright: ignore[reportMissingImports]
        PValuePermutationTest,
    )

    def test(x: np.ndarray, orders: int, seed: int) -> float:
        tester = PValuePermutationTest(
            task="regression", random_state=seed, num_permutations=orders, warn=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it fits on the first 30 %, and says so
            return float(tester.run(np.zeros((len(x), 1)), x).p_values[-1])

    return test


def plain_test() -> Test:
    return halves_test(vectorised=False)


def halves_test(vectorised: bool = True) -> Test:
    import scipy.stats

    def difference(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
        return first.mean(axis) - second.mean(axis)

    def test(x: np.ndarray, orders: int, seed: int) -> float:
        halves = (x[: LENGTH // 2], x[LENGTH // 2 :])
        found = scipy.stats.permutation_test(
            halves, difference, vectorized=vectorised, n_resamples=orders, rng=seed
        )
        return float(found.pvalue)

    return test


def lag_test() -> Test:
    import scipy.stats

    def lagged(x: np.ndarray, axis: int = -1) -> np.ndarray:
        centred = np.moveaxis(x, axis, -1) - x.mean(axis, keepdims=True)
        return (centred[..., 1:] * centred[..., :-1]).sum(-1)

    def test(x: np.ndarray, orders: int, seed: int) -> float:
        found = scipy.stats.permutation_test(
            (x,), lagged, permutation_type="pairings", vectorized=True, n_resamples=orders, rng=seed
        )
        return float(found.pvalue)

    return test


CONTENDERS = {
    "attnlens": attnlens_test, "mapie": mapie_test, "scipy, halves": halves_test,
    "scipy, plain": plain_test, "scipy, lag": lag_test,
}  # fmt: skip


def contend(name: str, folder: Path) -> None:
    """A contender's process: p-values of every sequence, or seconds of the timed ones."""
    test = CONTENDERS[name]()
    data = np.load(folder / "data.npz")
    if "speed" in data.files:
        x = data["speed"]
        test(x[0], 9, 0)  # what is loaded on first use
        seconds = {"one": _seconds(lambda: test(x[0], SPEED_ORDERS, 0))}
        count = TIMED[name]
        if name == "attnlens":
            seconds["batch"] = _seconds(lambda: test(x, SPEED_ORDERS, 0))
        else:
            each = _seconds(lambda: [test(row, SPEED_ORDERS, 0) for row in x[:count]])
            seconds["batch"] = each * BATCH / count
        print(json.dumps(seconds))
        return
    rates = {}
    for key in data.files:
        p = [test(row, POWER_ORDERS, seed) for seed, row in enumerate(data[key])]
        rates[key] = float(np.mean(np.array(p) <= LEVEL))
    print(json.dumps(rates))


def _seconds(run: Callable[[], object]) -> float:
    """The median of three runs, or of one that takes long."""
    spent: list[float] = []
    while len(spent) < 3 and sum(spent) < 1:
        start = time.perf_counter()
        run()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


# -- the run ---------------------------------------------------------------------------------------


def run(name: str, folder: Path, python: str) -> dict[str, float]:
    command = [python, "-m", "benchmarks.exchangeability", "--contend", name, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--contend", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--mapie", default=sys.executable, help="the Python that has MAPIE")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="60 trials, 3 rounds")
    given = parser.parse_args()
    if given.contend:
        contend(given.contend[0], Path(given.contend[1]))
        return
    trials, rounds = (60, 3) if given.quick else (given.trials, given.rounds)
    pythons = {name: given.mapie if name == "mapie" else sys.executable for name in CONTENDERS}
    if subprocess.run([given.mapie, "-c", "import mapie"], capture_output=True).returncode:
        print("MAPIE is not installed there: left out (see --mapie)")
        del pythons["mapie"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        np.savez(path / "data.npz", speed=draw("drift", 0.0, BATCH))
        times: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
        for _ in range(rounds):
            for name, python in pythons.items():
                times[name].append(run(name, path, python))
        speed(times)
        cases = {
            f"{kind} {strength:g}": draw(kind, strength, trials)
            for kind, strengths in STRENGTHS.items()
            for strength in strengths
        }
        np.savez(path / "data.npz", allow_pickle=False, **cases)
        rates = {n: run(n, path, python) for n, python in pythons.items() if n != ONLY_TIMED}
    error = (LEVEL * (1 - LEVEL) / trials) ** 0.5
    print(f"\nshare rejected at {LEVEL} of {trials} sequences of {LENGTH} tokens, {POWER_ORDERS}")
    print(f"permutations; the first row has no order and should say {LEVEL} ± {error:.3f}")
    print(f"{'':>20}" + "".join(f"{name:>16}" for name in rates))
    for case in cases:
        print(f"{case:>20}" + "".join(f"{rates[name][case]:16.3f}" for name in rates))


def speed(times: dict[str, list[dict[str, float]]]) -> None:
    load = os.getloadavg()[0]
    print(f"seconds with {SPEED_ORDERS} permutations, {LENGTH} tokens a sequence; load {load:.1f}")
    medians = {
        name: {key: statistics.median(row[key] for row in rows) for key in ("one", "batch")}
        for name, rows in times.items()
    }
    ours = medians["attnlens"]
    for name, row in medians.items():
        print(
            f"{name:>16}  one sequence {row['one']:8.4f} s ({row['one'] / ours['one']:6.1f}×)   "
            f"{BATCH} sequences {row['batch']:8.3f} s ({row['batch'] / ours['batch']:6.1f}×)"
        )


if __name__ == "__main__":
    main()
