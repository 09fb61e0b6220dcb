"""How fast this task multiplies matrices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

from worker.process.processors import INTRA_OP_THREADS, processors

CPU: Final = "CPU"
_CPU_SIZE: Final = 1024
_GPU_SIZE: Final = 8192
_CPU_SECONDS: Final = 2.0
_GPU_SECONDS: Final = 0.5
"""Of each GPU, of which a task may have 16."""


def measure(*, has_gpus: bool) -> dict[str, float]:
    """Returns GFLOP/s of float32 products by device: of each GPU, or else of the processors together, with as
    many threads as TensorFlow's operations have. A limit on CPU counts, and so do the node's other pods.

    It is called in a process of its own, which gives a GPU back when it ends.
    """
    rates = _of_gpus() if has_gpus else {}
    return rates or {CPU: _of_processors()}


def _of_processors() -> float:
    threads = os.environ.get(INTRA_OP_THREADS) or str(processors())
    # Read when numpy is imported. numpy's own wheels have OpenBLAS, some images MKL.
    os.environ.update({"OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})
    import numpy as np

    values = np.full((_CPU_SIZE, _CPU_SIZE), 0.5, np.float32)
    product = np.empty_like(values)
    return _rate(_CPU_SIZE, _CPU_SECONDS, lambda: np.matmul(values, values, out=product))


def _of_gpus() -> dict[str, float]:
    import tensorflow as tf

    rates: dict[str, float] = {}
    for number, device in enumerate(tf.config.list_logical_devices("GPU")):
        with tf.device(device.name):
            values = tf.fill((_GPU_SIZE, _GPU_SIZE), 0.5)
            rates[f"GPU {number}"] = _rate(
                _GPU_SIZE,
                _GPU_SECONDS,
                lambda values=values: tf.reduce_sum(tf.matmul(values, values)).numpy(),  # type: ignore[misc]
            )
    return rates


def _rate(size: int, seconds: float, multiply: Callable[[], Any]) -> float:
    """Returns GFLOP/s of products of two matrices of `size` x `size`, as many as fit in so many seconds."""
    multiply()  # the first one starts threads or the device
    products, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds or not products:
        multiply()
        products += 1
    passed = time.perf_counter() - began
    return 2.0 * size**3 * products / passed / 1e9
