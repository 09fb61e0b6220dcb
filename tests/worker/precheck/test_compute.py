"""How fast a task multiplies matrices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CODE = """\
import json
from worker.precheck import compute
import tensorflow as tf
devices = tf.config.list_logical_devices
tf.config.list_logical_devices = lambda kind: devices("CPU")[:COUNT] * 2
compute._GPU_SIZE, compute._GPU_SECONDS = 256, 0.1
print(json.dumps(compute.measure(has_gpus=True)))
"""


def measured(code: str, **environment: str) -> dict[str, float]:
    """Runs the code in a process of its own, as the precheck does. Returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True
    )
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def test_each_gpu_is_measured() -> None:
    """A CPU stands for two GPUs."""
    rates = measured(CODE.replace("COUNT", "1"))
    assert rates.keys() == {"GPU 0", "GPU 1"}
    assert min(rates.values()) > 0


def test_where_tensorflow_has_no_gpu_the_processors_are_measured() -> None:
    assert measured(CODE.replace("COUNT", "0")).keys() == {"CPU"}


def test_as_many_threads_multiply_as_tensorflow_has() -> None:
    code = (
        "import json, os; from worker.precheck import compute; compute._CPU_SECONDS = 0.2; "
        "rates = compute.measure(has_gpus=False); "
        "print(json.dumps({**rates, 'threads': int(os.environ['OPENBLAS_NUM_THREADS'])}))"
    )
    rates = measured(code, TF_NUM_INTRAOP_THREADS="1")
    assert rates["threads"] == 1
    assert rates["CPU"] > 0
