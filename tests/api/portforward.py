"""What a kubelet makes of a port-forward by WebSocket, subprotocol v4.channel.k8s.io."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Final
from urllib.parse import parse_qs, urlparse

_KEY: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
_BINARY, _CLOSE = 0x2, 0x8


def carry(request: BaseHTTPRequestHandler, port: int) -> None:
    """Connects whoever asks with a port of this machine, until either side ends it."""
    request.close_connection = True
    assert "v4.channel.k8s.io" in request.headers["Sec-WebSocket-Protocol"]
    (asked,) = parse_qs(urlparse(request.path).query)["port"]
    accepted = hashlib.sha1((request.headers["Sec-WebSocket-Key"] + _KEY).encode()).digest()
    request.send_response(101)
    request.send_header("Upgrade", "websocket")
    request.send_header("Connection", "Upgrade")
    request.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
    request.send_header("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())
    request.end_headers()
    for channel in (0, 1):
        _send(request.wfile, bytes([channel]) + struct.pack("<H", int(asked)))
    with socket.create_connection(("127.0.0.1", port)) as remote:
        back = threading.Thread(target=_back, args=(remote, request.wfile), daemon=True)
        back.start()
        with contextlib.suppress(OSError, struct.error):
            while (message := _receive(request.rfile)) is not None:
                assert message[0] == 0
                remote.sendall(message[1:])
        with contextlib.suppress(OSError):
            remote.shutdown(socket.SHUT_RDWR)
        back.join(10)


def _back(remote: socket.socket, to: BufferedIOBase) -> None:
    with contextlib.suppress(OSError):
        while piece := remote.recv(65536):
            _send(to, b"\0" + piece)
        to.write(bytes([0x80 | _CLOSE, 0]))
        to.flush()


def _send(to: BufferedIOBase, message: bytes) -> None:
    size = len(message)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size) if size < 65536 else b""
    to.write(bytes([0x80 | _BINARY]) + (length or b"\x7f" + struct.pack(">Q", size)) + message)
    to.flush()


def _receive(source: BufferedIOBase) -> bytes | None:
    """A message of a client, whose frames are masked; None at the end."""
    first, second = struct.unpack("BB", source.read(2))
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", source.read(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", source.read(8))
    mask, content = source.read(4), source.read(size)
    if first & 0xF == _CLOSE:
        return None
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(content))
