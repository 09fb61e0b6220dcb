"""Servers on loopback with answers that no API server gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Respond = Callable[[BaseHTTPRequestHandler], None]
ROOT = Path(__file__).parent.parent.parent
GOOD = str(ROOT / "tests" / "specs" / "valid" / "one-task-mirrored.yaml")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    body = b""

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server: Any = self.server
        server.asked.append(f"{self.command} {self.path}")
        try:
            server.respond(self)
        except OSError:
            self.close_connection = True

    do_POST = do_PATCH = do_DELETE = do_PUT = do_GET  # noqa: N815 - the base class finds them by name

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def server(respond: Respond) -> Iterator[Any]:
    """Starts a server with `port`, and the requests that it was `asked`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        http_server.daemon_threads = True
        vars(http_server).update(
            respond=respond, asked=[], port=http_server.server_port, handle_error=lambda *_: None
        )
        thread = threading.Thread(
            target=http_server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        yield http_server
        http_server.shutdown()
        thread.join()


def answering(content: bytes, status: int = 200, **headers: str) -> Respond:
    """Gives the same answer to every request."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return respond


def kubeconfig(
    directory: Path,
    server: str,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Path:
    path = directory / "kubeconfig"
    document = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **(context or {})}}],
    }
    path.write_text(json.dumps(document))
    return path


_ONE_BY_ONE = """
import json, sys
from launcher.cli import parser
sys.exit(max([parser.main(command) for command in json.loads(sys.argv[1])]))
"""


def launch_all(
    directory: Path, *commands: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the commands one after the other in one process; returns the highest exit code."""
    return _run(directory, ["-c", _ONE_BY_ONE, json.dumps(commands)], environment)


def launch(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, with the kubeconfig of the directory."""
    return _run(directory, ["-m", "launcher", *arguments], environment)


def _run(
    directory: Path, arguments: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    variables = {
        **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        "KUBECONFIG": str(directory / "kubeconfig"),
        "XDG_STATE_HOME": str(directory / "state"),
        "PYTHONPATH": str(ROOT),
        **(environment or {}),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
