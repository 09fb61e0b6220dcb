"""Has a coordinator use a worker again as soon as it is back under another address, as a new pod is.

TensorFlow's coordinator opens new connections when it notices that a worker has gone. The worker's name then
still stands for the old pod, and gRPC looks a name up again after 30 s at the earliest, an interval
(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS) that TensorFlow has no option for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from worker import peers
from worker.task import Task

_ROUND_SECONDS = 0.3


def connect_when_back(task: Task) -> None:
    """From now on this process opens new connections only when every worker answers: until then TensorFlow
    would wait too. It has no public function for it.
    """
    from tensorflow.python.eager import context

    workers, servers = (
        {task.pod(role, index): address for index, address in task.cluster.get(role, {}).items()}
        for role in ("worker", "ps")
    )
    own = context.context()
    update = own.update_server_def

    def updated(*arguments: Any, **named: Any) -> None:
        await_workers(workers, servers)
        update(*arguments, **named)

    own.update_server_def = updated


def await_workers(workers: Mapping[str, str], servers: Mapping[str, str]) -> None:
    """Until each of the workers has answered, or one of the parameter servers does not, whose loss ends the
    training. Both map pod names to addresses.
    """
    while not peers.faults(servers):
        workers = {name: workers[name] for name in peers.faults(workers)}
        if not workers:
            return
        time.sleep(_ROUND_SECONDS)
