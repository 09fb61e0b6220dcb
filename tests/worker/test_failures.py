"""What TensorFlow's errors mean for a task."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import ROOT

TAKEN = """
import socket
import tensorflow as tf
from worker.failures import classify

with socket.create_server(("127.0.0.1", 0)) as other:
    spec = tf.train.ClusterSpec({"worker": [f"127.0.0.1:{other.getsockname()[1]}"]})
    try:
        tf.distribute.Server(spec, job_name="worker", task_index=0)
    except tf.errors.OpError as error:
        failure = classify(error, "connecting to the cluster")
        print(int(failure.exit_code), failure.message)
"""


def test_a_port_that_is_taken_for_a_moment_is_tried_again() -> None:
    done = subprocess.run([sys.executable, "-c", TAKEN], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("75 ")
    assert done.stdout.endswith("while connecting to the cluster: is its port taken?\n")
