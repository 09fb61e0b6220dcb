"""One task gets a copy's files from another."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.copies import transfer

INDEX, DATA = "ckpt-1-7.index", "ckpt-1-7.data-00000-of-00001"


@pytest.fixture
def held(tmp_path: Path) -> Path:
    folder = tmp_path / "held"
    folder.mkdir()
    (folder / INDEX).write_bytes(b"index")
    (folder / DATA).write_bytes(bytes(range(256)) * 50_000)
    (folder / "ckpt-1-77.index").write_bytes(b"another")
    (folder / "secret").write_bytes(b"none of its business")
    return folder


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    folder = tmp_path / "wanted"
    folder.mkdir()
    return folder


def fetch(port: int, folder: Path, name: str = "ckpt-1-7") -> None:
    transfer.fetch(f"127.0.0.1:{port}", name, lambda size: folder)


def test_all_files_of_a_copy_and_no_others(held: Path, wanted: Path) -> None:
    sizes: list[int] = []

    def place(size: int) -> Path:
        sizes.append(size)
        return wanted

    with transfer.serving(held) as port:
        transfer.fetch(f"127.0.0.1:{port}", "ckpt-1-7", place)
    assert sorted(path.name for path in wanted.iterdir()) == sorted([INDEX, DATA])
    assert all((wanted / name).read_bytes() == (held / name).read_bytes() for name in (INDEX, DATA))
    assert sizes == [5 + 256 * 50_000]


def test_several_at_a_time(held: Path, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(5)]
    with transfer.serving(held) as port:
        for folder in folders:
            folder.mkdir()
        threads = [threading.Thread(target=fetch, args=(port, folder)) for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all((folder / DATA).read_bytes() == (held / DATA).read_bytes() for folder in folders)


@pytest.mark.parametrize("name", ["ckpt-1-8", "../held/ckpt-1-7", "secret", ""])
def test_a_name_that_is_no_copy_there(held: Path, wanted: Path, name: str) -> None:
    with transfer.serving(held) as port, pytest.raises(OSError, match="not there any more"):
        fetch(port, wanted, name)
    assert not list(wanted.iterdir())


def test_nobody_serves_any_more(held: Path, wanted: Path) -> None:
    with transfer.serving(held) as port:
        pass
    with pytest.raises(OSError, match="refused"):
        fetch(port, wanted)


@contextlib.contextmanager
def answering(answer: bytes, *, closes: bool = True) -> Iterator[int]:
    """A task that answers each connection with these bytes."""
    server = socket.create_server(("127.0.0.1", 0))
    kept = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.recv(100)
                connection.sendall(answer)
                kept.append(connection)
                if closes:
                    connection.close()

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.close()
    for connection in kept:
        connection.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'[["ckpt-1-7.index", 5]]\nind', "ends 2 bytes too early"),
        (b'[["../../ckpt-1-7.index", 5]]\nindex', "not a file of"),
        (b'[["ckpt-1-8.index", 5]]\nindex', "not a file of"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no list of files"),
        (b"", "no list of files"),
    ],
)
def test_a_task_that_is_lost_or_none(wanted: Path, answer: bytes, why: str) -> None:
    with answering(answer) as port, pytest.raises(OSError, match=why):
        fetch(port, wanted)
    assert not list(wanted.iterdir()), "nothing of it is taken for a copy"


def test_a_task_that_hangs(wanted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "SILENT_SECONDS", 0.5)
    with answering(b'[["ckpt-1-7.index", 5]]\nin', closes=False) as port, pytest.raises(TimeoutError):
        fetch(port, wanted)
    assert not list(wanted.iterdir())
