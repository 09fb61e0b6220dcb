"""Serves a task's metrics by HTTP, in a thread beside the supervisor's own: a scrape takes nothing of the
training process, and no request can end either.

It answers one request after the other, each within a bounded time. `http.server` would do the same, and
import TLS and mail for it, which the supervisor of every task would keep in memory.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from worker.contract.records import Content, Notice
from worker.supervisor.metrics import Metrics

_OPEN = "application/openmetrics-text"
_PLAIN = "text/plain"
_REQUEST_SECONDS = 5.0
"""Limit for a scraper to send its request, and again to take the answer; Prometheus gives up after 10 s."""
_REQUEST_BYTES = 16 << 10
_AGAIN_SECONDS = 1.0
"""After an error of the machine's, such as too many open files."""


def serve(address: str | None, metrics: Metrics, say: Callable[[Content], Any]) -> None:
    """Serves `metrics` from now on at `address`, `host:port` or `fd:N`: see `Env.METRICS`. Nothing is served
    where it is None, or where that cannot be; then it says why. It starts a thread.
    """
    if address is None:
        return
    try:
        listener = _listener(address)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        say(Notice(f"no metrics are served: cannot listen on port {address.rpartition(':')[2]}: {reason}"))
        return
    threading.Thread(target=_serve, args=(listener, metrics), name="metrics", daemon=True).start()


def _listener(address: str) -> socket.socket:
    kind, _, number = address.rpartition(":")
    if kind == "fd":
        return socket.socket(fileno=int(number))
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the pod has no IPv6, or the port is taken: that is tried again
            return socket.create_server(("", int(number)), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", int(number)))


def _serve(listener: socket.socket, metrics: Metrics) -> None:
    listener.settimeout(None)
    while True:
        try:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # a scraper that has left
                connection.settimeout(_REQUEST_SECONDS)
                connection.sendall(_answer(_request(connection), metrics))
        except Exception:  # noqa: BLE001 - whatever it is, the next request may succeed
            time.sleep(_AGAIN_SECONDS)


def _request(connection: socket.socket) -> str:
    """Returns the request's line and headers, as far as they come in time."""
    until, data = time.monotonic() + _REQUEST_SECONDS, b""
    while b"\r\n\r\n" not in data and len(data) < _REQUEST_BYTES and time.monotonic() < until:
        part = connection.recv(4096)
        if not part:
            break
        data += part
    return data.decode("latin-1")


def _answer(request: str, metrics: Metrics) -> bytes:
    line, _, headers = request.partition("\r\n")
    method, _, target = line.partition(" ")
    path = target.partition(" ")[0].partition("?")[0]
    if method not in ("GET", "HEAD"):
        status, kind, body = "405 Method Not Allowed", _PLAIN, "expected GET\n"
    elif path != "/metrics":
        status, kind, body = "404 Not Found", _PLAIN, "expected /metrics\n"
    else:
        is_open = any(
            _OPEN in header for header in headers.lower().split("\r\n") if header.startswith("accept:")
        )
        kind = f"{_OPEN}; version=1.0.0" if is_open else f"{_PLAIN}; version=0.0.4"
        status, body = "200 OK", metrics.text(is_open=is_open)
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else content)
