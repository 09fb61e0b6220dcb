"""Sends requests to an API server: by Python's own HTTP client, or by urllib3 if there is a proxy. Importing
urllib3 takes a tenth of the time of a submission.
"""

from __future__ import annotations

import http.client
import re
import select
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

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


class Answer(Protocol):
    """A server's answer. The caller must read or close it."""

    @property
    def status(self) -> int:
        """HTTP's."""

    def header(self, name: str) -> str:
        """Its first value, "" where there is none."""

    def headers(self, name: str) -> list[str]:
        """All its values."""

    def read(self) -> bytes:
        """The whole body; the connection is then kept for another request. Raises OSError."""

    def stream(self) -> Iterator[bytes]:
        """The body, piece by piece as it comes. Raises OSError, also where it ends before its end."""

    def close(self) -> None:
        """Drops the unread data, and closes the connection."""

    def shut(self) -> None:
        """Ends `stream`, from any thread. Raises OSError or ValueError where it has ended already."""


class Transport(Protocol):
    """Makes requests, from any thread. Keeps connections for the next."""

    def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], silence: float | None
    ) -> Answer:
        """`silence` is how long the server may send nothing, in seconds, None for ever. No redirect is
        followed, nothing is tried again. Raises OSError.
        """


class Direct:
    """Sends to one server, without a proxy. `url` is the server's; it may have a path. `server_name` is that
    of its certificate, "" for the host's.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._tls = tls
        self._name = server_name or self._host
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], silence: float | None
    ) -> DirectAnswer:
        """See `Transport.request`."""
        connection = self._connection()
        try:
            connection.sock.settimeout(silence)
            connection.request(method, url.removeprefix(self._origin), body, dict(headers))
            socket_ = connection.sock  # the connection drops it if this is its last answer
            return DirectAnswer(self, connection, socket_, connection.getresponse())
        except BaseException as error:
            connection.close()
            if isinstance(error, http.client.HTTPException | ValueError) and not isinstance(error, OSError):
                # The server's answer is no HTTP. The error's own text is not shown: it could quote our
                # headers.
                raise _broken(error) from None
            raise

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keeps a connection whose answer was read."""
        with self._lock:
            self._idle.append(connection)

    def _connection(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                # The one that was used last: it is most likely still open.
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connected()
            if connection.sock is not None and not _readable(connection.sock):
                return connection
            connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPConnection if self._tls is None else _Secured
        connection = kind(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            for option in socket_options():
                connection.sock.setsockopt(*option)
            if self._tls is not None:
                connection.sock = self._tls.wrap_socket(connection.sock, server_hostname=self._name)
        except BaseException:
            connection.close()
            raise
        return connection


class _Secured(http.client.HTTPConnection):
    """Over TLS, which is added once the socket is connected."""

    default_port = http.client.HTTPS_PORT


class DirectAnswer:
    """See `Answer`."""

    def __init__(
        self,
        transport: Direct,
        connection: http.client.HTTPConnection,
        socket_: socket.socket,
        response: http.client.HTTPResponse,
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._socket = socket_
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        """See `Answer.header`."""
        return str(self._response.headers.get(name) or "")

    def headers(self, name: str) -> list[str]:
        """See `Answer.headers`."""
        return [str(value) for value in self._response.headers.get_all(name) or ()]

    def read(self) -> bytes:
        """See `Answer.read`."""
        try:
            if (self._response.length or 0) > _LARGEST:
                raise http.client.HTTPException(f"an answer of {self._response.length} bytes")
            content = self._response.read()
        except (http.client.HTTPException, ValueError, OverflowError, MemoryError) as error:
            self.close()
            raise _broken(error) from error
        except OSError:
            self.close()
            raise
        if self._response.will_close:
            self.close()
        else:
            self._transport.give_back(self._connection)
        return content

    def stream(self) -> Iterator[bytes]:
        """See `Answer.stream`."""
        left = self._response.length  # None where it comes in chunks; read1 does not count before Python 3.13
        try:
            while left != 0:
                content = self._response.read1(_PIECE if left is None else min(left, _PIECE))
                if not content:
                    break
                left = None if left is None else left - len(content)
                yield content
        except (http.client.HTTPException, ValueError, OverflowError) as error:
            raise _broken(error) from error
        if left:
            raise _broken(http.client.IncompleteRead(b"", left))

    def close(self) -> None:
        """See `Answer.close`."""
        self._response.close()
        self._connection.close()

    def shut(self) -> None:
        """See `Answer.shut`."""
        # Not SSLSocket's own, which takes TLS away from under the thread that reads.
        socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def through(proxy: Proxy, tls: ssl.SSLContext | None, server_name: str = "") -> Pooled:
    """To any server through the proxy; `tls` and `server_name` are for the server."""
    import urllib3

    # The kubeconfig disables the check, and kubectl does not warn either.
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {"ssl_context": tls, "cert_reqs": tls.verify_mode}
        if not tls.check_hostname:
            secured["assert_hostname"] = False
        if server_name:
            secured["server_hostname"] = server_name
    pool = urllib3.ProxyManager(
        proxy.address.url,
        proxy_headers=dict(proxy.headers),
        maxsize=_CONNECTIONS,
        socket_options=socket_options(),
        **secured,
    )
    return Pooled(pool)


class Pooled:
    """Through a urllib3.PoolManager, which knows of proxies."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], silence: float | None
    ) -> PooledAnswer:
        """See `Transport.request`."""
        import urllib3

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
        except urllib3.exceptions.ProxyError as error:
            raise ProxyFailure(str(error.original_error)) from None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            if (found := _TUNNEL.search(str(error))) is not None:
                raise ProxyFailure(found[1]) from None
            raise _broken(error) from None
        return PooledAnswer(response)


class PooledAnswer:
    """See `Answer`."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status

    def header(self, name: str) -> str:
        """See `Answer.header`."""
        return str(self._response.headers.get(name) or "")

    def headers(self, name: str) -> list[str]:
        """See `Answer.headers`."""
        return list(self._response.headers.getlist(name))

    def read(self) -> bytes:
        """See `Answer.read`."""
        import urllib3

        try:
            content: bytes = self._response.read()
        except urllib3.exceptions.HTTPError as error:
            raise _broken(error) from error
        self._response.release_conn()
        return content

    def stream(self) -> Iterator[bytes]:
        """See `Answer.stream`."""
        import urllib3

        try:
            yield from self._response.stream(_PIECE)
        except urllib3.exceptions.HTTPError as error:
            raise _broken(error) from error

    def close(self) -> None:
        """See `Answer.close`."""
        self._response.close()

    def shut(self) -> None:
        """See `Answer.shut`."""
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


def _close(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _broken(error: BaseException) -> ConnectionError:
    if isinstance(error, ValueError):
        return ConnectionError(f"no request could be made of it ({type(error).__name__})")
    return ConnectionError(str(error) or type(error).__name__)


def _readable(socket_: socket.socket) -> bool:
    """Whether an idle connection has data to read, which mostly means that it was closed."""
    # select.select cannot look at descriptors above 1,023.
    if not hasattr(select, "poll"):
        return bool(select.select([socket_], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket_, select.POLLIN)
    return bool(poll.poll(0))
