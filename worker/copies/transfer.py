"""One task gets a copy's files from another, or gives them to it, by a connection of their own. Standard
library only.

    get NAME     is answered by the copy
    list         is answered by a JSON list of names
    put NAME     is followed by the copy, and answered by "kept" or a reason why it is not

A copy is a line of JSON, `[[FILE, BYTES], ...]`, and then the files; those of `put` come when "send" has
answered the line. Who gets a copy checks what the files hold before it takes them for one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from worker.peers import probes

SILENT_SECONDS = 20.0
"""A transfer ends when nothing has come for so long."""
_LEAST_PER_SECOND = 2 << 20
"""Bytes. A slower transfer is given up, after `SILENT_SECONDS` more."""
_PART_BYTES = 4 << 20
_LINE_BYTES = 1 << 16
_SEND, _KEPT = b"send", b"kept"
_NAME = re.compile(r"ckpt-\d+-\d+")
_FILE = re.compile(r"(ckpt-\d+-\d+)\.(index|data-\d{5}-of-\d{5})")


class RefusedError(OSError):
    """The other task does not keep a copy, and says why."""


Place = Callable[[int], Path]
"""Returns the folder for a copy of so many bytes. Raises OSError where there is no room."""


class Keeps(Protocol):
    """Who keeps what others put."""

    def place(self, size: int) -> Path:
        """See `Place`."""

    def accept(self, name: str) -> None:
        """Is told that the copy `name` is in its place. Raises OSError where it is damaged."""


@contextlib.contextmanager
def serving(folder: Path, keeps: Keeps | None = None) -> Iterator[int]:
    """Gives the copies in `folder` to whoever asks, until the block ends, and has `keeps` take in what others
    put. Yields the port.
    """
    server = socket.create_server(("", 0), backlog=128)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(
                target=_serve, args=(connection, folder, keeps), name="give", daemon=True
            ).start()

    threading.Thread(target=accept, name="copies", daemon=True).start()
    try:
        yield int(server.getsockname()[1])
    finally:
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # wakes accept()
        server.close()


def fetch(address: str, name: str, place: Place, alive: Callable[[], None] = lambda: None) -> None:
    """Gets the copy `name`: all of its files, as far as their sizes tell, or none. `alive` is called while
    data come.

    Raises OSError where the other one has no such copy, is silent, or too slow.
    """
    with _asking(address, f"get {name}") as (_, answer):
        _take(answer, name, place, alive)


def held(address: str) -> list[str]:
    """Returns the names of the copies that another task has. Raises OSError."""
    with _asking(address, "list") as (_, answer):
        try:
            return [str(name) for name in json.loads(answer.readline(_LINE_BYTES)) if _NAME.fullmatch(name)]
        except (ValueError, TypeError) as error:
            raise OSError("no list of copies") from error


def put(address: str, name: str, folder: Path) -> None:
    """Gives the copy `name` in `folder` to another task, which keeps it in the place of those before. Raises
    OSError where it does not, RefusedError where it says why.
    """
    with _asking(address, f"put {name}") as (connection, answer):
        _send(connection, name, folder, lambda: _expect(_SEND, answer))
        _expect(_KEPT, answer)


def _expect(word: bytes, answer: BinaryIO) -> None:
    line = answer.readline(_LINE_BYTES).strip()
    if not line:
        raise ConnectionError("the connection was lost")
    if line != word:
        raise RefusedError(line.decode(errors="replace"))


@contextlib.contextmanager
def _asking(address: str, request: str) -> Iterator[tuple[socket.socket, BinaryIO]]:
    with socket.create_connection(probes.split(address), SILENT_SECONDS) as connection:
        connection.settimeout(SILENT_SECONDS)
        connection.sendall(f"{request}\n".encode())
        with connection.makefile("rb") as answer:
            yield connection, answer


def _take(
    stream: BinaryIO,
    name: str,
    place: Place,
    alive: Callable[[], None],
    ready: Callable[[], None] = lambda: None,
) -> None:
    files = _listed(stream.readline(_LINE_BYTES), name)
    total = sum(files.values())
    until = time.monotonic() + SILENT_SECONDS + total / _LEAST_PER_SECOND
    folder = place(total)
    temporary = folder / "fetching"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        ready()
        for file, size in files.items():
            _receive(stream, temporary / file, size, until, alive)
        # The index goes last: without it there is no copy.
        for file in sorted(files, key=lambda each: each.endswith(".index")):
            (temporary / file).rename(folder / file)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _listed(line: bytes, name: str) -> dict[str, int]:
    try:
        files = {str(file): int(size) for file, size in json.loads(line)}
    except (ValueError, TypeError) as error:
        raise OSError(f"no list of files, but {line[:80]!r}") from error
    if not files:
        raise OSError(f"{name} is not there any more")
    for file in files:
        if (match := _FILE.fullmatch(file)) is None or match[1] != name:
            raise OSError(f"not a file of {name}: {file!r}")
    return files


def _receive(stream: BinaryIO, path: Path, size: int, until: float, alive: Callable[[], None]) -> None:
    with path.open("wb") as file:
        while size:
            data = stream.read(min(size, _PART_BYTES))
            if not data:
                raise OSError(f"{path.name} ends {size} bytes too early")
            file.write(data)
            size -= len(data)
            alive()
            if time.monotonic() > until:
                raise TimeoutError(f"{path.name} comes too slowly")


def _send(
    connection: socket.socket, name: str, folder: Path, listed: Callable[[], None] = lambda: None
) -> None:
    with contextlib.ExitStack() as stack:
        paths = sorted(folder.glob(f"{name}.*"))
        # Opened at once: the copy may be replaced meanwhile.
        files = [stack.enter_context(path.open("rb")) for path in paths if _FILE.fullmatch(path.name)]
        sizes = [[Path(file.name).name, os.fstat(file.fileno()).st_size] for file in files]
        connection.sendall(json.dumps(sizes).encode() + b"\n")
        listed()
        for file in files:
            connection.sendfile(file)


def _serve(connection: socket.socket, folder: Path, keeps: Keeps | None) -> None:
    with contextlib.suppress(OSError, UnicodeDecodeError), connection, connection.makefile("rb") as stream:
        connection.settimeout(SILENT_SECONDS)
        request, _, name = stream.readline(_LINE_BYTES).decode().strip().partition(" ")
        if request == "list":
            there = sorted(path.stem for path in folder.glob("ckpt-*.index"))
            connection.sendall(json.dumps(there).encode() + b"\n")
        elif not _NAME.fullmatch(name):
            connection.sendall(b"[]\n")
        elif request == "get":
            _send(connection, name, folder)
        elif request == "put" and keeps is not None:
            try:
                _take(stream, name, keeps.place, lambda: None, lambda: connection.sendall(_SEND + b"\n"))
                keeps.accept(name)
            except OSError as error:
                connection.sendall(f"{error.strerror or error}\n".encode())
            else:
                connection.sendall(_KEPT + b"\n")
