"""Workers that are lost and come back, as the chief's supervisor sees them: sockets replace servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.worker.cluster import eventually
from worker.parameter_server import worker_monitor


class Server:
    """Answers as a gRPC server does, until it is closed."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.sendall(b"\x00" * 9)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    monkeypatch.setattr(worker_monitor, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(worker_monitor, "PROBES_PER_SECOND", 1000.0)
    made = [Server() for _ in range(3)]
    yield made
    for server in made:
        with contextlib.suppress(OSError):
            server.close()


def test_who_is_gone_is_said_once_and_who_is_back_too(servers: list[Server]) -> None:
    sentences: list[str] = []
    attending = worker_monitor.WorkerMonitor(sentences.append)
    attending.follow({f"worker-{index}": server.address for index, server in enumerate(servers)})
    servers[1].close()
    eventually(lambda: len(sentences) == 1, "a sentence")
    assert sentences[0].startswith(
        "training continues with 2 of 3 workers, without worker-1 (nothing listens"
    )
    servers[1] = Server(servers[1].port)
    eventually(lambda: len(sentences) == 2, "another one")
    assert sentences[1].startswith("back again: worker-1 (after ")
    attending.follow({})


def test_nobody_is_missed_after_the_release(servers: list[Server]) -> None:
    sentences: list[str] = []
    attending = worker_monitor.WorkerMonitor(sentences.append)
    attending.follow({"worker-0": servers[0].address})
    attending.follow({})
    for server in servers:
        server.close()
    attending.follow({"worker-1": servers[1].address})
    eventually(lambda: len(sentences) == 1, "only those that are followed")
    assert "worker-1" in sentences[0]
