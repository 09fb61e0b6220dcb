"""HTTP on this machine's loopback: who may ask for the pages, and how they are sent."""

from __future__ import annotations

import hashlib
import os
import secrets
import socketserver
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from launcher.errors import BackendError
from launcher.redaction import redacted_message
from launcher.ui.site import Site

_OURS: Final = ("127.0.0.1", "localhost", "::1")
"""The names of this machine in an address: with another one a page of somebody else's would be let in, whose
name leads here (DNS rebinding). The port may be another one: a tunnel's."""

_FILES: Final = {"report.css": "text/css", "ui.css": "text/css", "ui.js": "text/javascript"}

_HEADERS: Final = {
    # The report's bars have their places in style attributes.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

EVERY: Final = "Tf-Launcher-Every"
"""The header with the seconds after which the page may be another one, for ui.js."""

_SILENCE: Final = 60.0
"""Seconds after which a connection that says nothing is closed."""


class Server(socketserver.ThreadingTCPServer):
    """Listens on a port of this machine's loopback, 0 for any that is free. Raises BackendError where it is
    in use.

    Other users of this machine reach the port, too, and logs are not for them. So a path begins with a token,
    which only who reads the command's output knows. A browser would send a cookie to their ports as well.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.site: Site | None = None
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise BackendError(f"port {port} of this machine: {reason}", "Name another.") from error

    @property
    def url(self) -> str:
        """The address of the list of all runs."""
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The browser has closed its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE
    server: Server

    def do_GET(self) -> None:
        """Answers GET."""
        try:
            self._answer()
        except Exception as error:  # noqa: BLE001 - the page says so, and the others go on
            message = redacted_message(f"{type(error).__name__}: {error}")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, f"error in the launcher itself: {message}\n")

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        """Not Python's version."""
        return "tf-launcher"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Nothing: paths have the token."""

    def _answer(self) -> None:
        asked, _, query = self.path.partition("?")
        token, *path = map(unquote, asked.removeprefix("/").split("/"))
        if not self._is_ours():
            self._send(HTTPStatus.FORBIDDEN, "This address is for pages of its own on this machine only.\n")
        elif not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._send(
                HTTPStatus.FORBIDDEN, "The address lacks its token: the command has printed all of it.\n"
            )
        elif len(path) == 1 and path[0] in _FILES:
            self._send(HTTPStatus.OK, _text(path[0]), _FILES[path[0]])
        elif (
            self.server.site is None
            or (answer := self.server.site.answer(path if path != [""] else [], parse_qs(query))) is None
        ):
            self._send(HTTPStatus.NOT_FOUND, "There is no such page.\n")
        else:
            self._send(HTTPStatus(answer.status), answer.page, "text/html", answer.every)

    def _is_ours(self) -> bool:
        """Whether this machine's own page, or the user, asks for it."""
        headers = self.headers
        hosts = headers.get_all("Host", [])
        try:
            known = len(hosts) == 1 and urlsplit(f"//{hosts[0]}").hostname in _OURS
        except ValueError:
            known = False
        # A link that the user follows may stand anywhere, in a terminal within a page for one.
        followed = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
        is_site_allowed = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin") or followed
        return (
            known and is_site_allowed and headers.get("Origin", f"http://{hosts[0]}") == f"http://{hosts[0]}"
        )

    def _send(self, status: HTTPStatus, text: str, kind: str = "text/plain", every: float = 0.0) -> None:
        body = text.encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("ETag", tag)
        if every:
            self.send_header(EVERY, f"{every:.1f}")
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@cache
def _text(name: str) -> str:
    return files("launcher").joinpath(f"templates/{name}").read_text("utf-8")
