"""The program of the pod: sends a file or a folder once, as a tar, by a port of the pod's own loopback,
to which only a port-forward comes. It runs in the run's image, on Python 3.9 or newer, and needs no more than
the standard library. `python -c <this text> ROOT PATH PORT SECONDS`.

    <- "send" and a line end; a connection that says nothing is a look whether the port answers
    -> a line of JSON: {"found": "file" | "folder" | "nothing", "there": the names beside it, if nothing}
    -> the tar, whose last member is the empty `complete`: without it something is missing
"""

from __future__ import annotations

import io
import json
import socket
import sys
import tarfile
from pathlib import Path

COMPLETE = "complete"
CONTENT = "content"
"""What the file is called in the tar, and the folder whose files come."""


def main(root: str, path: str, port: str, seconds: str) -> None:
    """Ends after it has sent, or so many seconds after nobody came."""
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        listener.settimeout(float(seconds))
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as question, connection.makefile("wb") as out:
                if question.readline() == b"send\n":
                    send(Path(root), Path(root, path), out)
                    return


def send(root: Path, path: Path, out: io.BufferedIOBase) -> None:
    """The line, and the tar."""
    kind = "nothing" if path.is_symlink() else "folder" if path.is_dir() else "file"
    if kind == "file" and not path.is_file():
        kind = "nothing"
    answer: dict[str, object] = {"found": kind}
    if kind == "nothing":
        folder = path.parent
        while folder != root and not folder.is_dir():
            folder = folder.parent
        answer["there"] = sorted(each.name for each in folder.iterdir())[:20] if folder.is_dir() else []
    out.write(json.dumps(answer).encode() + b"\n")
    if kind != "nothing":
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            add(tar, path, CONTENT)
            tar.addfile(tarfile.TarInfo(COMPLETE))
    out.flush()


def add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Files and folders, and nothing else: no link leads out of the folder."""
    if path.is_symlink():
        return
    try:
        if path.is_dir():
            tar.add(path, name, recursive=False)
            for inner in sorted(path.iterdir()):
                add(tar, inner, f"{name}/{inner.name}")
        elif path.is_file():
            tar.add(path, name)
    except FileNotFoundError:
        pass  # an old checkpoint, which the training has removed meanwhile


if __name__ == "__main__":
    main(*sys.argv[1:5])
