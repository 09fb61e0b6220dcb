"""A proxy in front of a real API server. It counts the requests, and does on demand what such a server seldom
does: it is gone, busy or broken, leaves streams hanging, or no longer knows a token.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

_HOP_BY_HOP = ("connection", "host", "keep-alive", "transfer-encoding", "content-length")
_PIECE = 1 << 16
_POLL_SECONDS = 0.05


class Request(NamedTuple):
    """One that came through. `time` is monotonic."""

    time: float
    method: str
    path: str
    query: dict[str, str]

    @property
    def is_stream(self) -> bool:
        """Whether its answer goes on: a watch, or a log that is followed."""
        return self.query.get("watch") == "true" or self.query.get("follow") == "true"

    @property
    def is_write(self) -> bool:
        """Whether it changes an object."""
        return self.method != "GET" and "dryRun" not in self.query


class ApiProxy:
    """Forwards to the server of a kubeconfig, over http. Its methods may be called from any thread."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._document = document
        self._server = urlsplit(cluster["server"])
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._streams: list[threading.Event] = []
        self._act: tuple[Callable[[Request], bool], Callable[[], None]] | None = None
        self._status = 0
        self._expired: set[str] = set()
        self._over = threading.Event()
        self._listening: ThreadingHTTPServer | None = None
        self._port = 0
        self.asked: list[Request] = []
        self.sent = 0
        """Bytes of answers, without their headers."""
        self.back()

    def kubeconfig(self, directory: Path, token_file: Path | None = None) -> Path:
        """Writes one that leads here, with the user of the original, or with the token in a file."""
        document = json.loads(json.dumps(self._document))
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        if token_file is not None:
            document["users"][0]["user"] = {"tokenFile": str(token_file)}
        path = directory / "kubeconfig-of-the-proxy"
        path.write_text(json.dumps(document))
        return path

    def gone(self) -> None:
        """Refuses connections, and breaks those there are."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.shutdown()
            listening.server_close()
        self._break()

    def back(self) -> None:
        """Accepts connections again, and answers as the server does."""
        self._status = 0
        if self._listening is None:
            self._listening = _Listening(("127.0.0.1", self._port), _Handler, self)
            self._port = self._listening.server_port
            threading.Thread(target=self._listening.serve_forever, args=(_POLL_SECONDS,), daemon=True).start()

    def answer(self, status: int) -> None:
        """Answers every request with this status, and ends the streams there are."""
        self._status = status
        self._break()

    def hang(self) -> None:
        """Nothing more comes of the streams there are; new requests are answered."""
        for stream in self._streams:
            stream.set()

    def expire(self, token: str) -> None:
        """Answers requests with this token with 401, and ends the streams there are."""
        self._expired.add(token)
        self._break()

    def _break(self) -> None:
        """Breaks the connections there are."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def after(self, matches: Callable[[Request], bool], act: Callable[[], None]) -> None:
        """Calls `act` once, when the first such request has been answered."""
        self._act = matches, act

    def has(self, matches: Callable[[Request], bool]) -> bool:
        """Whether there was such a request."""
        return any(matches(request) for request in list(self.asked))

    def close(self) -> None:
        """Ends all connections."""
        self._over.set()
        self.gone()

    def _connected(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def _disconnected(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def _refusal(self, token: str) -> tuple[int, str] | None:
        if self._status:
            return self._status, "the proxy was told to say so"
        return (401, "Unauthorized") if token in self._expired else None

    def _answered(self, request: Request) -> None:
        with self._lock:
            due = self._act if self._act is not None and self._act[0](request) else None
            if due is not None:
                self._act = None
        if due is not None:
            due[1]()

    def _stream(self) -> threading.Event:
        hung = threading.Event()
        self._streams.append(hung)
        return hung

    def _upstream(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._server.hostname or "", self._server.port, context=self._tls, timeout=600
        )


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Any, proxy: ApiProxy) -> None:
        self.proxy = proxy
        super().__init__(address, handler)

    def handle_error(self, *_: Any) -> None:
        """A connection that broke is what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    _server: http.client.HTTPSConnection | None = None

    def setup(self) -> None:
        super().setup()
        self._proxy._connected(self.connection)

    def finish(self) -> None:
        self._proxy._disconnected(self.connection)
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            super().finish()

    @property
    def _proxy(self) -> ApiProxy:
        server: Any = self.server
        proxy: ApiProxy = server.proxy
        return proxy

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        request = Request(time.monotonic(), self.command, url.path, query)
        if not request.is_stream:
            self._proxy.asked.append(request)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if (refusal := self._proxy._refusal(token)) is not None:
            status, message = refusal
            if request.is_stream:
                self._proxy.asked.append(request)
            content = json.dumps({"kind": "Status", "code": status, "message": message}).encode()
            self.send_response_only(status)
            self.send_header("Retry-After", "1")
            self._whole(content)
            return
        try:
            self._forward(request, body)
        except OSError:
            self.close_connection = True
        self._proxy._answered(request)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class finds them by name

    def _forward(self, request: Request, body: bytes) -> None:
        if self._server is None:
            self._server = self._proxy._upstream()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        self._server.request(self.command, self.path, body or None, headers)
        answer = self._server.getresponse()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if not request.is_stream:
            self._whole(answer.read())
            return
        hung = self._proxy._stream()
        self._proxy.asked.append(request)  # now, so that whoever has seen it may let it hang
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            piece = answer.read1(_PIECE)
            if hung.is_set():
                self._proxy._over.wait()
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))  # an empty one ends the answer
            self._proxy.sent += len(piece)
            if not piece:
                return

    def _whole(self, content: bytes) -> None:
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self._proxy.sent += len(content)

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@contextmanager
def proxy(kubeconfig: Path) -> Iterator[ApiProxy]:
    """In front of the kubeconfig's server, until the end."""
    made = ApiProxy(kubeconfig)
    try:
        yield made
    finally:
        made.close()
