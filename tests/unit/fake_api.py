"""An API server with faults that a real one does not have on demand: it is busy, broken, or cuts
connections.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.connection import connect

Query = dict[str, list[str]]
Answer = Callable[["Handler", Query], None]


class Handler(BaseHTTPRequestHandler):
    """Answers with the next entry of the server's script, the last one again and again."""

    protocol_version = "HTTP/1.1"
    body = b""

    def do_GET(self) -> None:
        server: Any = self.server
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlparse(self.path)
        query = parse_qs(url.query)
        server.asked.append((url.path, {key: values[0] for key, values in query.items()}))
        answers = server.script
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        try:
            answer(self, query)
        except OSError:
            self.close_connection = True

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class finds them by name

    def log_message(self, *_: Any) -> None:
        pass


def says(document: object, status: int = 200, **headers: str) -> Answer:
    """One JSON document."""

    def answer(handler: Handler, _: Query) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def streams(*parts: bytes, cut: bool = False) -> Answer:
    """Streams parts. With `cut`, the connection ends without the end of the stream."""

    def answer(handler: Handler, _: Query) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.flush()
        if cut:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")

    return answer


def hangs_up(handler: Handler, _: Query) -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


def waits(handler: Handler, _: Query) -> None:
    """Opens a stream that stays empty, until the client hangs up."""
    streams(b"", cut=True)(handler, _)
    handler.connection.settimeout(30)
    handler.connection.recv(1)


class Fake:
    """The server's script, the requests that it got, and a client of it."""

    def __init__(self, server: Any, client: Client) -> None:
        self._server = server
        self.client = client

    def will(self, *answers: Answer) -> None:
        """Sets the answers, one for each request."""
        self._server.script[:] = answers

    @property
    def asked(self) -> list[tuple[str, dict[str, str]]]:
        """Returns paths and queries so far."""
        return list(self._server.asked)


@contextmanager
def serving(directory: Path) -> Iterator[Fake]:
    """The server, with a kubeconfig in the directory."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        vars(server).update(script=[says({}, 500)], asked=[])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        path = directory / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "current-context": "fake",
                    "clusters": [
                        {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
                    ],
                    "users": [{"name": "fake", "user": {}}],
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                }
            )
        )
        yield Fake(server, Client(connect(str(path))))
        server.shutdown()
        thread.join()


def listing(*names: str, version: str = "7") -> Answer:
    return says({"metadata": {"resourceVersion": version}, "items": [pod(name) for name in names]})


def pod(name: str, version: str = "7") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def event(kind: str, name: str, version: str) -> bytes:
    return json.dumps({"type": kind, "object": pod(name, version)}).encode() + b"\n"
