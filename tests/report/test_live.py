"""The live page is served on the loopback address while the run lasts, and only to requests that
name this address."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attnlens import verify
from attnlens.report import live
from attnlens.report.live import SECONDS_PER_PAGE, RenderedPage, serving
from attnlens.report.page import render_documents
from attnlens.runs.pages import finished
from attnlens.runs.store.store import Store
from browser import chromium, drawn, needs_browser, opened, until
from running import start, toy


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with serving(lambda: "<p>page</p>", lambda: {"done": 1}) as url:
        host, port = re.fullmatch(r"http://(.*):(\d+)/", url).groups()  # type: ignore[union-attr] (the pattern matches, or the test fails here)
        yield host, int(port)


def request(address: tuple[str, int], method: str, path: str, host: str | None = None):
    connection = http.client.HTTPConnection(*address, timeout=5)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"{address[0]}:{address[1]}")
    connection.endheaders()
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_the_server_answers_two_paths_and_nothing_else(address: tuple[str, int]):
    assert address[0] == "127.0.0.1"
    assert request(address, "GET", "/") == (200, "<p>page</p>")
    assert request(address, "HEAD", "/") == (200, "")
    assert json.loads(request(address, "GET", "/progress.json")[1]) == {"done": 1}
    assert request(address, "GET", "/../etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert request(address, method, "/")[0] == 501


@pytest.mark.parametrize("host", ["example.org", "example.org:80", "127.0.0.1", "evil.localhost"])
def test_requests_with_a_foreign_host_are_refused(address: tuple[str, int], host: str):
    assert request(address, "GET", "/", host)[0] == 403
    assert request(address, "GET", "/progress.json", host)[0] == 403


def test_the_server_ends_with_the_context():
    with serving(lambda: "", dict) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()


@needs_browser
@pytest.mark.slow
def test_the_open_page_follows_the_run(tmp_path: Path):
    verify("smoke", ["toy_claims:CLAIM"], tmp_path, workers=1)
    with Store.reading(tmp_path) as store:
        ledger, content = finished(store)
    text = render_documents(ledger, content, [], "Running: 1 of 9 cells.")
    done = iter(range(2, 10**6))
    with (
        serving(lambda: text, lambda: {"words": f"Running: {next(done)} of 9", "done": 1}) as url,
        chromium() as browser,
    ):
        page, console, requests = opened(browser, url)
        banner = "() => document.getElementById('running').textContent"
        until(page, f"() => ({banner})() === 'Running: 3 of 9'")
        # Figures are drawn although the policy of the page allows requests to its own server only.
        place = page.query_selector("[data-figure]")
        place.scroll_into_view_if_needed()
        drawn(page, place)
        assert console == []
        assert {request.removeprefix(url) for request in requests} == {"", "progress.json"}
        forbidden = "() => fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
        assert page.evaluate(forbidden) == "refused"
        assert any("Content Security Policy" in line for line in console)


def test_a_run_serves_its_page_until_it_ends(tmp_path: Path):
    process = start(*toy("SLOW", tmp_path, "--live"), TOY_PAUSE="0.3")
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
            address = match[0]
            break
    page = urllib.request.urlopen(address, timeout=30).read().decode()
    assert "Running: " in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= set(
        policy[1].split("; ")
    )
    assert "Verdicts are provisional." in page
    state = json.load(urllib.request.urlopen(f"{address}progress.json", timeout=30))
    assert state["done"] <= state["total"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address, timeout=2)


def test_two_hundred_simultaneous_requests_are_all_served():
    """The page takes half a second to render and has two megabytes."""
    renderings = []

    def page() -> str:
        renderings.append(time.monotonic())
        time.sleep(0.5)
        return "x" * 2_000_000

    with serving(page, lambda: {"done": 1}) as url:
        started = threading.Barrier(200)

        def fetch(number: int) -> int:
            started.wait()
            path = "" if number % 2 else "progress.json"
            return len(urllib.request.urlopen(url + path, timeout=60).read())

        with ThreadPoolExecutor(200) as pool:
            sizes = list(pool.map(fetch, range(200)))
    assert sorted(sizes) == [len('{"done": 1}')] * 100 + [2_000_000] * 100
    assert len(renderings) <= 2 + (renderings[-1] - renderings[0]) / SECONDS_PER_PAGE


def test_requests_beyond_the_bound_wait(monkeypatch: pytest.MonkeyPatch):
    """Idle connections take all threads. After a while they are closed, and waiting requests are
    served."""
    monkeypatch.setattr(live._Handler, "timeout", 0.3)
    with serving(lambda: "page", dict) as url, contextlib.ExitStack() as stack:
        port = int(url.rstrip("/").rpartition(":")[2])
        for _ in range(live.AT_ONCE):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert urllib.request.urlopen(url, timeout=30).read() == b"page"


def test_connections_that_send_a_byte_at_a_time_are_closed(monkeypatch: pytest.MonkeyPatch):
    """Each byte begins a new time limit of its connection. Neither other requests nor the end of
    the run wait for such connections."""
    monkeypatch.setattr(live, "SECONDS_PER_REQUEST", 0.3)
    ended = threading.Event()

    def trickle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.1):
                connection.sendall(b"G")

    with contextlib.ExitStack() as stack:
        with serving(lambda: "page", dict) as url:
            port = int(url.rstrip("/").rpartition(":")[2])
            for wave in range(2):
                for _ in range(live.AT_ONCE + 1):
                    connection = socket.create_connection(("127.0.0.1", port))
                    stack.enter_context(connection)
                    threading.Thread(target=trickle, args=(connection,), daemon=True).start()
                if wave == 0:
                    assert urllib.request.urlopen(url, timeout=10).read() == b"page"
            started = time.monotonic()
        assert time.monotonic() - started < 10
        ended.set()


def test_the_page_is_rendered_again_when_it_is_old():
    now, texts = [0.0], iter("abc")
    page = RenderedPage(lambda: next(texts), clock=lambda: now[0])
    contents = []
    for moment in (0.0, SECONDS_PER_PAGE / 2, SECONDS_PER_PAGE, SECONDS_PER_PAGE):
        now[0] = moment
        contents.append(page.content())
    assert contents == [b"a", b"a", b"b", b"b"]
