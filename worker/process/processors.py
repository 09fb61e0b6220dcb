"""The processors that this process may use, and the threads that TensorFlow makes for them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Final

from worker.contract.environment import Env
from worker.process import cgroups

INTRA_OP_THREADS: Final = "TF_NUM_INTRAOP_THREADS"
"""Read by TensorFlow when it makes a device (local_device.cc). `tf.config.threading` goes before it."""
_REQUESTS: Final = 2
"""Threads for each processor that a pod requests. A pod may use more than it requests where its node has
processors to spare. On a full node twice the threads cost a tenth of the speed, 32 times half of it
(`python -m benchmarks.threads`).
"""
_VERSION_1: Final = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
_FEWEST: Final = 4
"""Threads that a pod with a small request has at least."""


def processors() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota() -> float | None:
    """Returns how many processors' time the limit on CPU gives the container; None where it has none."""
    quotas = []
    for folder in cgroups.folders("cpu"):
        of_version_1 = [number for name in _VERSION_1 for number in cgroups.numbers(folder / name)]
        for pair in (cgroups.numbers(folder / "cpu.max"), of_version_1):
            if len(pair) == 2 and pair[0] > 0:  # version 1 has -1 where there is no limit
                quotas.append(pair[0] / pair[1])
    return min(quotas, default=None)


def throttled() -> float | None:
    """Returns the seconds for which the limit on CPU has held up the container; None where that is not
    known.
    """
    files = (cgroups.named_numbers(folder / "cpu.stat") for folder in cgroups.folders("cpu"))
    stat = next(filter(None, files), {})
    if "throttled_usec" in stat:
        return stat["throttled_usec"] / 1e6
    return stat["throttled_time"] / 1e9 if "throttled_time" in stat else None


def thread_variables(request: float | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variable for TensorFlow's threads, where a pod has less than the processors
    that it sees: by default TensorFlow makes a thread for each of the node's. `request` is the pod's request
    of CPU. A variable of the user's stays.
    """
    if INTRA_OP_THREADS in environ:
        return {}
    limits = [] if (given := quota()) is None else [math.ceil(given)]
    if request and Env.LOCAL not in environ:  # on this machine resources have no meaning
        limits.append(max(_FEWEST, math.ceil(_REQUESTS * request)))
    threads = min(limits, default=None)
    return {} if threads is None or threads >= processors() else {INTRA_OP_THREADS: str(threads)}
