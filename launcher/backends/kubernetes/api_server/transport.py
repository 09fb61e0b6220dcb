"""Sends requests to an API server, through a proxy where there is one."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final

import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning, ProxyError

from launcher.backends.kubernetes.api_server.addresses import Proxy

CONNECT_SECONDS: Final = 10.0
_CONNECTIONS: Final = 64
"""Connections that are kept open; `logs --follow` has one for each task."""
_LARGEST: Final = 1 << 30
"""The largest answer in bytes; a list of 500 objects is smaller."""
_PIECE: Final = 1 << 16
"""Bytes."""

_TUNNEL: Final = re.compile(r"Tunnel connection failed: ([^'\")]*)")


class ProxyFailure(ConnectionError):  # noqa: N818 - an OSError, as the others here
    """The proxy does not answer or does not connect; the request has not reached the server."""


class Transport:
    """Makes requests, from any thread, and keeps connections for the next. `server_name` is that of the
    server's certificate, "" for its host's.
    """

    def __init__(self, tls: ssl.SSLContext | None, server_name: str = "", proxy: Proxy | None = None) -> None:
        # The kubeconfig disables the check, and kubectl does not warn either.
        urllib3.disable_warnings(InsecureRequestWarning)
        options: dict[str, Any] = {"maxsize": _CONNECTIONS, "socket_options": socket_options()}
        if tls is not None:
            options |= {"ssl_context": tls, "cert_reqs": tls.verify_mode}
            if not tls.check_hostname:
                options["assert_hostname"] = False
            if server_name:
                options["server_hostname"] = server_name
        if proxy is None:
            self._pool = urllib3.PoolManager(**options)
        else:
            address, headers = proxy.address.url, dict(proxy.headers)
            self._pool = urllib3.ProxyManager(address, proxy_headers=headers, **options)

    def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], silence: float | None
    ) -> Answer:
        """`silence` is how long the server may send nothing, in seconds, None for ever. No redirect is
        followed, nothing is tried again. Raises OSError.
        """
        try:
            response = self._pool.request(
                method,
                url,
                body=body,
                headers=dict(headers),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=silence),
                retries=False,
                preload_content=False,
            )
        except ProxyError as error:
            raise ProxyFailure(str(error.original_error)) from None
        except (HTTPError, ValueError) as error:
            # Its own text and cause could quote our headers.
            if (match := _TUNNEL.search(str(error))) is not None:
                raise ProxyFailure(match[1]) from None
            raise _broken(error) from None
        return Answer(response)


class Answer:
    """A server's answer. The caller must read or close it."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status
        """HTTP's."""

    def header(self, name: str) -> str:
        """Returns its first value, "" where there is none."""
        return str(self._response.headers.get(name) or "")

    def headers(self, name: str) -> list[str]:
        """Returns all its values."""
        return list(self._response.headers.getlist(name))

    def read(self) -> bytes:
        """Returns the whole body; the connection is then kept for another request. Raises OSError."""
        try:
            if (self._response.length_remaining or 0) > _LARGEST:
                raise HTTPError(f"an answer of {self._response.length_remaining} bytes")
            content: bytes = self._response.read()
        except (HTTPError, ValueError, OverflowError, MemoryError) as error:
            self.close()
            raise _broken(error) from error
        self._response.release_conn()
        return content

    def stream(self) -> Iterator[bytes]:
        """Yields the body, piece by piece as it comes. Raises OSError, also where it ends before its end."""
        try:
            yield from self._response.stream(_PIECE)
        except (HTTPError, ValueError, OverflowError) as error:
            raise _broken(error) from error

    def close(self) -> None:
        """Drops the unread data, and closes the connection."""
        self._response.close()

    def shut(self) -> None:
        """Ends `stream`, from any thread. Raises OSError or ValueError where it has ended already."""
        self._response.shutdown()


def socket_options() -> list[tuple[int, int, int]]:
    """So that a watch notices within a minute that its server has vanished."""
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    ]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _broken(error: BaseException) -> ConnectionError:
    if isinstance(error, ValueError):
        return ConnectionError(f"no request could be made of it ({type(error).__name__})")
    return ConnectionError(str(error) or type(error).__name__)
