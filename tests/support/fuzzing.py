"""Settings of the fuzzers: every run has the same examples; ATTNLENS_FUZZ_SEED gives others."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, seed, settings

from watchdog import SEED


def fuzzed(examples: int) -> Any:
    """Hypothesis settings for a fuzzer with `examples` examples."""
    print(f"ATTNLENS_FUZZ_SEED={SEED}")
    health = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    fixed = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=health
    )
    return lambda test: seed(SEED)(fixed(test))
