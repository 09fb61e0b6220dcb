"""Has a coordinator use a worker again as soon as it is back under another address, as a new pod is.

TensorFlow's coordinator opens new connections when it notices that a worker is gone. At that moment DNS still
maps the worker's name to the old pod. gRPC looks a name up again after 30 s at the earliest
(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS), and TensorFlow has no option for that interval.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from worker.process import probes
from worker.task import Task
from worker.tf_compat.connections import before_connecting

_ROUND_SECONDS = 0.3


def connect_when_back(task: Task) -> None:
    """From now on this process opens new connections only when every worker answers. TensorFlow would wait
    for them too.
    """
    workers = {task.pod("worker", index): address for index, address in task.cluster["worker"].items()}
    before_connecting(lambda: await_workers(workers))


def await_workers(workers: Mapping[str, str]) -> None:
    """Waits until each of the workers, pod name to address, has answered."""
    while True:
        workers = {name: workers[name] for name in probes.faults(workers)}
        if not workers:
            return
        time.sleep(_ROUND_SECONDS)
