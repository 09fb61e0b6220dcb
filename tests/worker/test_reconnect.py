"""The workers that a coordinator waits for before it connects again: sockets replace servers."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from tests.worker.cluster import eventually
from tests.worker.test_worker_monitor import Server
from worker.cluster import reconnect
from worker.contract import ExitCode
from worker.failures import classify
from worker.tf_compat import connections


def test_a_coordinator_connects_again_when_every_worker_is_back() -> None:
    workers = [Server() for _ in range(3)]
    workers[1].close()
    addresses = {f"worker-{index}": worker.address for index, worker in enumerate(workers)}
    waiting = threading.Thread(target=reconnect.await_workers, args=(addresses,))
    waiting.start()
    waiting.join(3 * reconnect._ROUND_SECONDS)
    assert waiting.is_alive()
    workers[1] = Server(workers[1].port)
    eventually(lambda: not waiting.is_alive(), "that it goes on")
    for server in workers:
        server.close()


def test_what_fails_while_a_coordinator_connects_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    error = tf.errors.OutOfRangeError(None, None, "End of sequence")
    assert classify(error, "training epoch 2").exit_code == ExitCode.PROGRAM_ERROR
    monkeypatch.setattr(connections, "connecting", lambda: True)
    failure = classify(error, "training epoch 2")
    assert failure.exit_code == ExitCode.RETRYABLE
    assert failure.message.startswith("a worker came back while training epoch 2: ")
    assert classify(ValueError("no"), "training epoch 2").exit_code == ExitCode.PROGRAM_ERROR
