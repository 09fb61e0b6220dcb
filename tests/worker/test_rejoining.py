"""Who is waited for before a coordinator connects again: sockets in place of servers."""

from __future__ import annotations

import threading

from tests.worker.cluster import eventually
from tests.worker.test_attendance import Server
from worker import rejoining


def test_a_coordinator_connects_again_when_every_worker_is_back() -> None:
    ps, *workers = [Server() for _ in range(3)]
    workers[1].close()
    addresses = {f"worker-{index}": worker.address for index, worker in enumerate(workers)}
    waiting = threading.Thread(target=rejoining.await_workers, args=(addresses, {"ps-0": ps.address}))
    waiting.start()
    waiting.join(3 * rejoining._ROUND_SECONDS)
    assert waiting.is_alive()
    workers[1] = Server(workers[1].port)
    eventually(lambda: not waiting.is_alive(), "that it goes on")
    for server in (ps, *workers):
        server.close()


def test_a_lost_parameter_server_ends_the_waiting() -> None:
    ps, worker = Server(), Server()
    worker.close()
    waiting = threading.Thread(
        target=rejoining.await_workers, args=({"worker-0": worker.address}, {"ps-0": ps.address})
    )
    waiting.start()
    waiting.join(3 * rejoining._ROUND_SECONDS)
    assert waiting.is_alive()
    ps.close()
    eventually(lambda: not waiting.is_alive(), "that TensorFlow says what is lost")
