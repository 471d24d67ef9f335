"""The page of a run while it runs, served on this machine's loopback address only.

The server binds to 127.0.0.1 and answers GET and HEAD for two paths, only if the Host header names
that address: in a DNS rebinding attack, a foreign page whose name points here sends its own name
as Host and is refused. Nothing can be written to it. It ends with the run.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"


@contextmanager
def serving(page: Callable[[], str], progress: Callable[[], dict[str, Any]]) -> Iterator[str]:
    """Serve `page()` at / and `progress()` at /progress.json; yield the address."""

    class Handler(_Handler):
        make_page, make_progress = staticmethod(page), staticmethod(progress)
        port = staticmethod(lambda: server.server_port)
        render_lock = threading.Lock()

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.daemon = True
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    make_page: Callable[[], str]
    make_progress: Callable[[], dict[str, Any]]
    port: Callable[[], int]
    render_lock: threading.Lock
    timeout = 10  # seconds after which a connection without a request is closed

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
            kind = "text/html; charset=utf-8"
            with self.render_lock:
                text = self.make_page()
        elif self.path == "/progress.json":
            kind, text = "application/json", json.dumps(self.make_progress())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = text.encode()
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
