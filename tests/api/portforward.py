"""Serves a port-forward by WebSocket as a kubelet does, subprotocol v4.channel.k8s.io."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import select
import socket
import ssl
import struct
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Final
from urllib.parse import parse_qs, urlparse

_KEY: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
_BINARY, _CLOSE = 0x2, 0x8


def carry(request: BaseHTTPRequestHandler, port: int) -> None:
    """Connects the client with a port of this machine, until either side closes."""
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
    with socket.create_connection(("127.0.0.1", port)) as remote, contextlib.suppress(OSError):
        _both_ways(request, remote)


def _both_ways(request: BaseHTTPRequestHandler, remote: socket.socket) -> None:
    """Copies in one thread: to read and write at the same time can corrupt a TLS connection."""
    source, received = request.connection, b""
    assert isinstance(source, ssl.SSLSocket)
    while True:
        ready, _, _ = select.select([remote, source], [], [], 0 if source.pending() else None)
        if source in ready or source.pending():
            data = source.recv(65536)
            if not data:
                return
            received += data
            while (frame := _frame(received)) is not None:
                message, received = frame
                if message is None:
                    return
                assert message[0] == 0
                remote.sendall(message[1:])
        if remote in ready:
            piece = remote.recv(65536)
            if not piece:
                request.wfile.write(bytes([0x80 | _CLOSE, 0]))
                return
            _send(request.wfile, b"\0" + piece)


def _send(to: BufferedIOBase, message: bytes) -> None:
    size = len(message)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size) if size < 65536 else b""
    to.write(bytes([0x80 | _BINARY]) + (length or b"\x7f" + struct.pack(">Q", size)) + message)
    to.flush()


def _frame(received: bytes) -> tuple[bytes | None, bytes] | None:
    """Returns the first message of a client, whose frames are masked, and the bytes after it; the message is
    None where the client closes. Returns None before the frame is complete.
    """
    if len(received) < 2:
        return None
    size, start = received[1] & 0x7F, 2
    if size >= 126:
        form = ">H" if size == 126 else ">Q"
        start += struct.calcsize(form)
        if len(received) < start:
            return None
        (size,) = struct.unpack(form, received[2:start])
    mask, end = received[start : start + 4], start + 4 + size
    if len(received) < end:
        return None
    if received[0] & 0xF == _CLOSE:
        return None, b""
    content = bytes(byte ^ mask[index % 4] for index, byte in enumerate(received[start + 4 : end]))
    return content, received[end:]
