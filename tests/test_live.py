"""The live page: on loopback, for those who ask for it by name, while the run lasts."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlens.report.live import serving
from running import start, toy


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with serving(lambda: "<p>page</p>", lambda: {"done": 1}) as url:
        host, port = re.fullmatch(r"http://(.*):(\d+)/", url).groups()  # type: ignore[union-attr]
        yield host, int(port)


def ask(address: tuple[str, int], method: str, path: str, host: str | None = None):
    connection = http.client.HTTPConnection(*address, timeout=5)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"{address[0]}:{address[1]}")
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_it_answers_two_addresses_and_nothing_else(address: tuple[str, int]):
    assert address[0] == "127.0.0.1"
    assert ask(address, "GET", "/") == (200, "<p>page</p>")
    assert ask(address, "HEAD", "/") == (200, "")
    assert json.loads(ask(address, "GET", "/progress.json")[1]) == {"done": 1}
    assert ask(address, "GET", "/../etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(address, method, "/")[0] == 501


@pytest.mark.parametrize("host", ["example.org", "example.org:80", "127.0.0.1", "evil.localhost"])
def test_foreign_names_are_refused(address: tuple[str, int], host: str):
    assert ask(address, "GET", "/", host)[0] == 403
    assert ask(address, "GET", "/progress.json", host)[0] == 403


def test_it_ends_with_the_block():
    with serving(lambda: "", dict) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()


def test_a_run_can_be_watched(tmp_path: Path):
    process = start(*toy("SLOW", tmp_path, "--live"), TOY_PAUSE="0.3")
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
            address = found[0]
            break
    page = urllib.request.urlopen(address, timeout=30).read().decode()
    assert "Running: " in page
    assert "Verdicts are provisional." in page
    state = json.load(urllib.request.urlopen(f"{address}progress.json", timeout=30))
    assert state["done"] <= state["total"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address, timeout=2)
