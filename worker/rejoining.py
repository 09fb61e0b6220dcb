"""Has a coordinator use a worker again as soon as it is back under another address, as a new pod is.

TensorFlow's coordinator opens new connections when it notices that a worker has gone. The worker's name then
still stands for the old pod, and gRPC looks a name up again after 30 s at the earliest, an interval
(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS) that TensorFlow has no option for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from worker import peers

if TYPE_CHECKING:
    from worker.task import Task

_ROUND_SECONDS = 0.3
_connecting = threading.Event()


def connect_when_back(task: Task) -> None:
    """From now on this process opens new connections only when every worker answers: until then TensorFlow
    would wait too. It has no public function for it.
    """
    from tensorflow.python.eager import context

    workers = {task.pod("worker", index): address for index, address in task.cluster["worker"].items()}
    own = context.context()
    update = own.update_server_def

    def updated(*arguments: Any, **named: Any) -> None:
        await_workers(workers)
        _connecting.set()
        try:
            update(*arguments, **named)
        finally:
            _connecting.clear()

    own.update_server_def = updated


def connecting() -> bool:
    """Whether new connections are being opened. TensorFlow's operations may fail then with any error: where a
    network lost packets, with "Resource input tensor contains an invalid device" and "End of sequence".
    """
    return _connecting.is_set()


def await_workers(workers: Mapping[str, str]) -> None:
    """Until each of the workers, pod name to address, has answered."""
    while True:
        workers = {name: workers[name] for name in peers.faults(workers)}
        if not workers:
            return
        time.sleep(_ROUND_SECONDS)
