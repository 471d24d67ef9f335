"""Settings of the fuzzers: the same examples in every run, others with ATTNLENS_FUZZ_SEED."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, seed, settings

from watchdog import SEED


def fuzzed(examples: int) -> Any:
    """The settings of a fuzzer with so many examples."""
    print(f"ATTNLENS_FUZZ_SEED={SEED}")
    health = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    fixed = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=health
    )
    return lambda test: seed(SEED)(fixed(test))
