"""Tells workers and parameter servers to leave.

TensorFlow's servers block for ever by design, and do not learn that the run is over. The chief writes a file
on each of their disks, by an operation placed on them.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from worker.contract.records import Released
from worker.contract.strategies import STRATEGIES
from worker.devices import on_server
from worker.peers import probes
from worker.process.watch import Silence, Watch
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import connections

TASK_SECONDS = 5.0
"""Limit for one task. An operation takes 0.01 to 0.03 s; on a hung task it never returns."""
RETURN_SECONDS = 20.0
"""Limit for tasks that are away. A server is back about 7 s after its start, most of which is the import."""


def release(
    task: Task,
    outcome: str,
    reporter: Reporter,
    watch: Watch,
    exit_code: int,
    connected: bool,
    lost: Collection[str] = (),
) -> None:
    """Releases every worker and ps of `task.cluster` that answers, one by one, and reports them. It does not
    wait for the return of the workers `lost` (pod names), and reports them only where they answer.

    Everything must be saved before. If an operation blocks nevertheless, the watchdog ends this process with
    `exit_code` and reports the other tasks as unreachable. `connected` says whether a strategy has connected
    this process to the cluster already.
    """
    addresses = {
        task.pod(role, index): (role, index, address)
        for role in STRATEGIES[task.config.strategy].servers
        for index, address in task.cluster.get(role, {}).items()
    }
    if not addresses or task.directory is None:
        return
    released: list[str] = []

    def expect() -> None:
        unreachable = [name for name in addresses if name not in released]
        watch.expect(Silence(3 * TASK_SECONDS, Released(list(released), unreachable), exit_code))

    expect()
    # A hung task would block the first operation sent to it, and every thread with it.
    away = _away({name: address for name, (_, _, address) in addresses.items()}, lost, expect)
    answering = {name: task for name, task in addresses.items() if name not in away}
    addresses = {name: task for name, task in addresses.items() if name in answering or name not in lost}
    if not connected and not _connect(task, answering.values()):
        answering = {}
    # A hung task would hold up a change of the cluster, and so would a ps that is away.
    can_connect = probes.SILENT not in away.values() and not any(
        role == "ps" for name, (role, _, _) in addresses.items() if name in away
    )
    _regain([(role, index) for role, index, _ in answering.values()], can_connect, expect)
    for name, (role, index, _) in answering.items():
        expect()
        if _write(task, name, role, index, outcome):
            released.append(name)
    unreachable = [name for name in addresses if name not in released]
    reporter.emit(Released(released, unreachable))


def _away(addresses: Mapping[str, str], lost: Collection[str], alive: Callable[[], None]) -> dict[str, str]:
    """Returns the tasks that do not answer. It waits for a task that restarts, since nobody would release it
    later, but for none of those that are `lost`.
    """
    given_up: dict[str, str] = {}
    deadline = time.monotonic() + RETURN_SECONDS
    while True:
        away = probes.faults(addresses, TASK_SECONDS)
        alive()
        given_up.update({name: reason for name, reason in away.items() if name in lost})
        away = {name: reason for name, reason in away.items() if name not in lost}
        returning = [name for name, reason in away.items() if reason != probes.SILENT]
        if not returning or time.monotonic() > deadline:
            return {**given_up, **away}
        addresses = {name: address for name, address in addresses.items() if name in away}
        time.sleep(0.5)


def _regain(tasks: list[tuple[str, int]], can_connect: bool, alive: Callable[[], None]) -> None:
    """Makes tasks usable that restarted or came a moment ago, before the first task is released.

    A restarted server answers a new connection at once. gRPC retries its old connection only after a while,
    which is longer the longer the server was away.
    """
    deadline = time.monotonic() + RETURN_SECONDS
    while time.monotonic() < deadline:
        alive()
        states = {_state(role, index) for role, index in tasks}
        if can_connect and states - {_State.USABLE}:
            with contextlib.suppress(tf.errors.OpError):
                connections.connect([index for role, index in tasks if role == "worker"])
            return
        if _State.UNREACHED not in states:
            return
        time.sleep(0.5)


def _write(task: Task, name: str, role: str, index: int, outcome: str) -> bool:
    path = task.file_of(name, "released")
    try:
        with on_server(role, index):
            tf.io.write_file(path, outcome)
    except (tf.errors.OpError, ValueError):
        return False
    try:
        # The call has only queued the write, which is lost if this process ends first. A value of the same
        # device comes when all that was queued before it is done.
        with on_server(role, index):
            tf.timestamp().numpy()
    except tf.errors.UnavailableError:
        return True  # it has left within these milliseconds
    except tf.errors.OpError:
        return False
    return True


class _State(enum.Enum):
    USABLE = enum.auto()
    STALE = enum.auto()
    """The task restarted, and does not know this process yet."""
    UNREACHED = enum.auto()


def _state(role: str, index: int) -> _State:
    try:
        with on_server(role, index):
            tf.timestamp()
    except tf.errors.AbortedError:
        return _State.STALE
    except (tf.errors.OpError, ValueError):
        return _State.UNREACHED
    return _State.USABLE


def _connect(task: Task, answering: Any) -> bool:
    """Connects to the tasks that answer, and to no other. It is for a run whose training never began."""
    cluster: dict[str, dict[int, str]] = {task.role: {task.index: task.address or ""}}
    for role, index, address in answering:
        cluster.setdefault(role, {})[index] = address
    if len(cluster) == 1:
        return False
    try:
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(cluster), job_name=task.role, task_index=task.index
        )
    except (tf.errors.OpError, RuntimeError, ValueError):
        return False
    return True
