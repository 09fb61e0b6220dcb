"""An HTTP proxy that leads out of a run's own network. Only the run's tasks can reach it.

Programs download their data. The tasks find the proxy in HTTP_PROXY and HTTPS_PROXY, which Python, pip and
curl obey; gRPC reads only the names in small letters, so TensorFlow's own connections stay as they are. The
socket is made in the run's network, and this process is in the machine's: what comes in there goes on here.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import urlsplit

from launcher.backends.local.process.processes import die_with_parent

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

_MOST_HEADER_BYTES: Final = 64 << 10
_CHUNK_BYTES: Final = 64 << 10


class Proxy:
    """The proxy's process. It is forked before its parent leaves the machine's network, and its socket is
    opened afterwards.
    """

    def __init__(self) -> None:
        parent = os.getpid()
        self._ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self._ours.close()
            die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            _serve(theirs)
        theirs.close()

    def open(self) -> Mapping[str, str]:
        """The variables that lead the tasks to it. Raises OSError."""
        with self._ours, socket.create_server(("127.0.0.1", 0)) as listener:
            socket.send_fds(self._ours, [b"x"], [listener.fileno()])
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": "localhost,127.0.0.1,::1"}


def _serve(orders: socket.socket) -> NoReturn:
    try:
        _, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
        orders.close()
        if descriptors:
            import asyncio

            # A broken connection is not worth an entry in the run's log.
            asyncio.run(_accept(socket.socket(fileno=descriptors[0])))
    finally:
        os._exit(0)


async def _accept(listener: socket.socket) -> None:
    import asyncio

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    server = await asyncio.start_server(_answer, sock=listener, limit=_MOST_HEADER_BYTES)
    await server.serve_forever()


async def _answer(reader: StreamReader, writer: StreamWriter) -> None:
    """One connection of a task."""
    import asyncio

    try:
        header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, _, rest = header.partition("\r\n")
        method, target, version = line.split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        default = 443 if method == "CONNECT" else 80
        far_reader, far_writer = await asyncio.open_connection(url.hostname, url.port or default)
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        await _refuse(writer, "400 Bad Request", "expected a request of a proxy's")
        return
    except OSError as error:
        await _refuse(writer, "502 Bad Gateway", str(error))
        return
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        path = url._replace(scheme="", netloc="").geturl() or "/"
        far_writer.write(
            f"{method} {path} {version}\r\nConnection: close\r\n{_onward(rest)}".encode("latin-1")
        )
    await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
    for each in (writer, far_writer):
        each.close()


def _onward(header: str) -> str:
    """The headers without those that are meant for the proxy."""
    proxy_headers = ("connection:", "proxy-connection:", "proxy-authorization:", "keep-alive:")
    return "\r\n".join(line for line in header.split("\r\n") if not line.lower().startswith(proxy_headers))


async def _refuse(writer: StreamWriter, status: str, why: str) -> None:
    import contextlib

    body = f"{why}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError):
        writer.write(head.encode() + body)
        await writer.drain()
    writer.close()


async def _pass_on(source: StreamReader, target: StreamWriter) -> None:
    """Copies until the source ends; the other direction goes on."""
    import contextlib

    with contextlib.suppress(OSError):
        while chunk := await source.read(_CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if target.can_write_eof():
            target.write_eof()
