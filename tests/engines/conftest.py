"""Ray clusters that tests start listen on loopback only."""

from __future__ import annotations

import pytest

from attnlens.runs.engines import ray_connection
from running import ENVIRONMENT


@pytest.fixture(autouse=True)
def _on_loopback_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ENVIRONMENT, ray_connection.LOOPBACK, "0")
