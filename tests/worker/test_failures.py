"""What TensorFlow's errors mean for a task."""

from __future__ import annotations

import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.paths import ROOT
from worker.failures import advice_of_shares

TAKEN = """
import socket
import tensorflow as tf
from tensorflow.data.experimental import service
from worker.failures import classify

with socket.create_server(("0.0.0.0", 0)) as other:
    port = other.getsockname()[1]
    try:
        {}
    except Exception as error:
        failure = classify(error, "starting")
        print(int(failure.exit_code), failure.message)
"""


@pytest.mark.parametrize(
    "server",
    [
        'tf.distribute.Server({"worker": [f"127.0.0.1:{port}"]}, job_name="worker", task_index=0)',
        "service.DispatchServer(service.DispatcherConfig(port=port))",
        'service.WorkerServer(service.WorkerConfig("localhost:1", port=port, dispatcher_timeout_ms=1000))',
    ],
    ids=["Server", "DispatchServer", "WorkerServer"],
)
def test_a_port_that_is_taken_for_a_moment_is_tried_again(server: str) -> None:
    code = TAKEN.replace("{}", server)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("75 ")
    assert done.stdout.endswith("while starting: is its port taken?\n")


def test_a_stateful_layer_on_several_replicas_is_told_what_trains_it() -> None:
    model = keras.Sequential([keras.Input(batch_shape=(4, 2, 1)), keras.layers.LSTM(2, stateful=True)])
    with pytest.raises(ValueError, match="stateful") as raised:
        model(np.zeros([2, 2, 1], "float32"))
    assert "OneDevice trains it" in advice_of_shares(raised.value, 2)
    assert advice_of_shares(raised.value, 1) == ""
