"""The page of a run while it runs, served on this machine's loopback address only.

The server binds to 127.0.0.1 and answers GET and HEAD for two paths, only if the Host header names
that address: in a DNS rebinding attack, a foreign page whose name points here sends its own name
as Host and is refused. Nothing can be written to it. It ends with the run.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
# At most AT_ONCE requests are answered at the same time; up to WAITING more wait in the queue of
# the operating system. A browser opens six connections.
AT_ONCE, WAITING = 16, 1024
# A request that takes longer is ended as soon as others wait for its thread: a client that sends a
# byte every few seconds could hold the thread for days.
SECONDS_PER_REQUEST = 10.0
# A page is rendered again at most this often: rendering takes a second of the driver's time.
SECONDS_PER_PAGE = 2.0


@contextmanager
def serving(page: Callable[[], str], progress: Callable[[], dict[str, Any]]) -> Iterator[str]:
    """Serve `page()` at / and `progress()` at /progress.json; yield the address."""
    rendered = RenderedPage(page)

    class Handler(_Handler):
        make_page, make_progress = staticmethod(rendered.content), staticmethod(progress)
        port = staticmethod(lambda: server.server_port)

    server = _BoundedServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.daemon = True
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class RenderedPage:
    """The page as bytes. One thread renders it; meanwhile other threads get the previous page.

    >>> RenderedPage(lambda: "page").content()
    b'page'
    """

    def __init__(self, make: Callable[[], str], clock: Callable[[], float] = time.monotonic):
        self.make, self.clock = make, clock
        self.lock = threading.Lock()
        self.last: tuple[float, bytes] | None = None  # when it was rendered, and its content

    def content(self) -> bytes:
        """The page, at most `SECONDS_PER_PAGE` old, or the last one while it is rendered again."""
        last = self.last
        if last is not None and self.clock() - last[0] < SECONDS_PER_PAGE:
            return last[1]
        if not self.lock.acquire(blocking=last is None):
            assert last is not None
            return last[1]
        try:
            if self.last is last:  # no other thread has rendered it while this one waited
                self.last = self.clock(), self.make().encode()
            assert self.last is not None
            return self.last[1]
        finally:
            self.lock.release()


class _BoundedServer(ThreadingHTTPServer):
    """A server with one thread per request, at most `AT_ONCE` at the same time."""

    daemon_threads = True
    request_queue_size = WAITING

    def __init__(self, *arguments: Any):
        self.free = threading.BoundedSemaphore(AT_ONCE)
        self.started: dict[socket.socket, float] = {}  # when each request that is answered began
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self.free.acquire(timeout=0.1):
            self._end_slow_requests()
        self.started[request] = time.monotonic()
        super().process_request(request, client_address)

    def _end_slow_requests(self) -> None:
        latest = time.monotonic() - SECONDS_PER_REQUEST
        for request, started in list(self.started.items()):
            if started < latest:
                with suppress(OSError):  # it has ended meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self.started[request]
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a browser that closes its connection early is no fault of the run."""


class _Handler(BaseHTTPRequestHandler):
    make_page: Callable[[], bytes]
    make_progress: Callable[[], dict[str, Any]]
    port: Callable[[], int]
    timeout = 5  # seconds after which a connection without a request is closed

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        port = self.port()
        if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN, "ask for 127.0.0.1")
            return
        if self.path == "/":
            kind, content = "text/html; charset=utf-8", self.make_page()
        elif self.path == "/progress.json":
            kind, content = "application/json", json.dumps(self.make_progress()).encode()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: standard error belongs to the progress bar."""
