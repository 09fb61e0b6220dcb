"""What is asked of MLflow's server, by a server that answers as it should not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from worker.tracking.mlflow import Server, TrackerError


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Gives the address of a server that answers everything with this."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "message", "again"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "nothing of MLflow's", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "nothing of MLflow's", True),
        (http(b"<html>"), "nothing of MLflow's", True),
        (http(b"{}"), "nothing of MLflow's", True),
        (http(b"[]"), "nothing of MLflow's", True),
        (http(b"7"), "nothing of MLflow's", True),
        (b"", "Remote end closed connection", True),
        (http(b'{"error_code": "BUSY", "message": ""}', "503 Busy"), "status 503", True),
        (http(b'{"error_code": "BAD", "message": "no\\nmore"}', "400 Bad"), "no", False),
    ],
)
def test_whatever_is_answered_is_an_error_that_ends_no_training(
    answer: bytes, message: str, again: bool
) -> None:
    with answering(answer) as uri, pytest.raises(TrackerError, match=message) as raised:
        Server(uri).find("Default", "1")
    assert raised.value.again is again


def test_a_server_that_is_not_there_is_said_without_a_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(TrackerError, match=r"^Connection refused$"):
        Server(f"http://127.0.0.1:{port}").find("Default", "1")
