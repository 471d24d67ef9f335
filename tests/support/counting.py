"""Count compilations. A function that compiles again for every seed is slow but raises no error."""

from __future__ import annotations

import jax.monitoring

_compiled = 0


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    global _compiled
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled += 1


jax.monitoring.register_event_duration_secs_listener(_listen)


def compilations() -> int:
    """The number of programs that this process has compiled since this module was imported."""
    return _compiled
