"""Forwards a port of this machine to a port of a pod, through the API server and the pod's node, as `kubectl
port-forward` does. Network policies do not apply to it.

Each connection is one WebSocket with the subprotocol v4.channel.k8s.io: channel 0 carries the bytes, channel
1 says why they end. Each channel begins with a message that repeats the port.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from launcher.backends.base import Board
from launcher.backends.kubernetes.api_server.api_errors import Request, refusal
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.resources import path_of
from launcher.backends.kubernetes.api_server.transport import CONNECT_SECONDS, socket_options
from launcher.errors import BackendError

if TYPE_CHECKING:
    from websocket import WebSocket

_PROTOCOL: Final = "v4.channel.k8s.io"
_BYTES, _ERRORS = 0, 1
_PIECE: Final = 1 << 16
"""Bytes in one message."""
_REST_SECONDS: Final = 0.5
"""Seconds to wait for the rest of a message or TLS record."""


class Tunnel(Board):
    """Listens on a port of this machine's loopback, 0 for any that is free; see `base.Board`.

    `pod` finds the name of the pod, for each connection anew: it may be replaced meanwhile. Raises what `pod`
    raises, and BackendError where the pod cannot be reached or the port is in use.
    """

    def __init__(
        self, client: Client, namespace: str, pod: Callable[[], str], remote: int, port: int
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._pod = pod
        self._remote = remote
        self._closed = threading.Event()
        # Before the address is returned, so that a missing right is an error here.
        self._connected().close()
        try:
            self._listener = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise BackendError(f"port {port} of this machine: {reason}", "Name another.") from error
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, name="tunnel", daemon=True).start()

    def wait(self) -> None:
        """See `base.Board.wait`."""
        # In short waits: on some systems a wait without a limit cannot be interrupted.
        while not self._closed.wait(1.0):
            pass

    def close(self) -> None:
        """See `base.Board.close`."""
        if not self._closed.is_set():
            self._closed.set()
            # Closing the socket does not end a wait in accept.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                local, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(local,), name="tunnel", daemon=True).start()

    def _carry(self, local: socket.socket) -> None:
        """One connection, until either side ends it."""
        with local:
            try:
                remote = self._connected()
            except BackendError:
                return  # the browser sees the connection end, and tries again
            # An error ends this connection only.
            with contextlib.suppress(Exception):
                _carry(local, remote)
            remote.shutdown()

    def _connected(self) -> WebSocket:
        """A WebSocket whose other end is the port."""
        import websocket

        connection, pod = self._client.connection, self._pod()
        path = path_of("Pod", self._namespace, pod, "portforward")
        url = f"{connection.host}/{path}?{urlencode({'ports': self._remote})}".replace("http", "ws", 1)
        headers = [
            f"{name}: {value}" for name, value in connection.credentials(self._client.patience.left()).items()
        ]
        secured: dict[str, object] = {} if connection.tls is None else {"context": connection.tls}
        if connection.server_name:
            secured["server_hostname"] = connection.server_name
        try:
            return websocket.create_connection(
                url,
                timeout=CONNECT_SECONDS,
                header=headers,
                subprotocols=[_PROTOCOL],
                suppress_origin=True,
                sslopt=secured or None,
                sockopt=socket_options(),
                **self._way(),
            )
        except websocket.WebSocketBadStatusException as error:
            request = Request("create", "pods/portforward", self._namespace, pod)
            body = _document(error.resp_body)
            raise refusal(
                request, error.status_code, body, connection.host, connection.origin, None
            ) from error
        except (OSError, ValueError, websocket.WebSocketException) as error:
            raise self._client.unreachable(error) from None

    def _way(self) -> dict[str, Any]:
        """The proxy as options of websocket-client. Without them it would look for one itself."""
        proxy = self._client.connection.proxy
        if proxy is None:
            return {"http_no_proxy": ["*"]}
        if proxy.address.scheme != "http":
            raise BackendError(f"no tunnel leads through {proxy}", "A proxy of http:// would carry one.")
        user, _, password = proxy.address.userinfo.partition(":")
        return {
            "http_proxy_host": proxy.address.host,
            "http_proxy_port": proxy.address.port,
            "http_proxy_auth": (user, password) if user else None,
            "proxy_type": "http",
        }


def _carry(local: socket.socket, remote: WebSocket) -> None:
    """Both directions, until either side ends it.

    In one thread, since OpenSSL does not allow two of them to use one connection at a time.
    """
    began: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(local, selectors.EVENT_READ)
        selector.register(remote, selectors.EVENT_READ)
        while True:
            decrypted = isinstance(remote.sock, ssl.SSLSocket) and remote.sock.pending()
            ready = {key.fileobj for key, _ in selector.select(0 if decrypted else None)}
            if decrypted or remote in ready:
                message = _message(remote)
                if message == b"":
                    return
                if message is not None and message[0] not in began:
                    began.add(message[0])  # the port, which is known
                elif message is not None and message[0] == _ERRORS:
                    return
                elif message is not None:
                    local.sendall(message[1:])
            if local in ready:
                piece = local.recv(_PIECE)
                if not piece:
                    return
                remote.settimeout(None)
                remote.send_binary(bytes([_BYTES]) + piece)


def _message(remote: WebSocket) -> bytes | None:
    """The next one; None where it is not whole yet, and b"" at the end."""
    import websocket

    remote.settimeout(_REST_SECONDS)
    try:
        message = remote.recv()
    except websocket.WebSocketTimeoutException:
        return None  # what has come of it is kept
    return message if isinstance(message, bytes) else message.encode("latin-1")


def _document(body: bytes | None) -> dict[str, object]:
    try:
        document = json.loads(body or b"")
    except ValueError:
        document = {"message": (body or b"").decode(errors="replace")}
    return document if isinstance(document, dict) else {"message": str(document)}
