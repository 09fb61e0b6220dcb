"""What `spec.precheck` asks for: each task measures what its node can do, before it trains.

All of it happens in a process of its own: it may use a GPU and threads, which the supervisor's process must
not have, and whatever goes wrong in it costs the run nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from worker.contract.exit_codes import ExitCode
from worker.contract.records import Doing, Prechecked
from worker.failures import Failure, sentence
from worker.peers import probes, start_barrier
from worker.precheck import compute, network, storage
from worker.process.activity import Activity
from worker.process.sigterm import leave_on_signal
from worker.process.watch import Watch
from worker.reporting import Reporter
from worker.task import Task, from_environment

_MEASURING: Final = "measuring what this node can do"
_SECONDS: Final = 90.0
"""Limit beside the wait for the other tasks. It takes at most 20, with GPUs the import of TensorFlow more."""
_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from worker.precheck import measurements; sys.exit(measurements.main())"
)


def run(task: Task, reporter: Reporter, environment: Mapping[str, str]) -> int | None:
    """Measures in another process. Returns the exit code with which the task must leave, None where it goes
    on: only tasks that wait in vain for the others leave.
    """
    leave_on_signal()
    command = [sys.executable, "-c", _CODE, json.dumps(sys.path)]
    given = {"TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    seconds = task.config.starting_deadline_seconds + _SECONDS
    try:
        code = subprocess.run(command, env=given, timeout=seconds, check=False).returncode
        if code == ExitCode.RETRYABLE:
            return code
        problem = f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        problem = f"it took more than {seconds:.0f} s"
    except OSError as error:
        problem = str(error)
    if problem:
        reporter.notice(f"the precheck measured nothing: {problem}")
    return None


def main() -> int:
    """The other process. Returns its exit code."""
    leave_on_signal()
    task = from_environment()
    reporter = Reporter(task.name)
    try:
        reporter.emit(measure(task, reporter))
    except Failure as failure:
        reporter.failed(failure)
        return failure.exit_code
    return ExitCode.DONE


def measure(task: Task, reporter: Reporter) -> Prechecked:
    """Returns what this task has measured. What cannot be measured is left out, with a notice.

    Raises Failure (RETRYABLE) where the other tasks do not come in time.
    """
    reporter.emit(Doing(_MEASURING))
    began = time.monotonic()
    rates = compute.measure(has_gpus=_has_gpus(task))
    stores: dict[str, float] = {}
    for name, place in _places(task):
        try:
            measured = storage.measure_url(place) if "://" in place else storage.measure_folder(Path(place))
        except Exception as error:  # noqa: BLE001 - the training says what its own storage does to it
            reporter.notice(f"the precheck cannot measure {name} ({place}): {sentence(error)}")
            continue
        stores |= {f"{name} {direction}": rate for direction, rate in measured.items()}
    seconds = time.monotonic() - began
    connections = {}
    precheck, task = task.config.precheck, _among_all(task)
    if task.address is not None and task.peers:
        with network.Measurements(_addresses(task), task.name) as measurements:
            activity = Activity(Watch(), reporter, 0.0, 0.0)
            try:
                start_barrier.gather(task, activity, reporter, lambda: None, probes.absence)
            except Failure:
                if precheck is None or not precheck.only:
                    raise
            reporter.emit(Doing(_MEASURING))
            began = time.monotonic()
            connections = measurements.measure()
            seconds += time.monotonic() - began
    return Prechecked(
        round(seconds, 1),
        _rounded(rates),
        _rounded(stores),
        _rounded({name: connection.bandwidth for name, connection in connections.items()}),
        _rounded({name: connection.latency for name, connection in connections.items()}),
    )


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def _has_gpus(task: Task) -> bool:
    """Returns whether the task may have GPUs; TensorFlow is imported then, to measure them."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return task.role in task.config.gpus or any(Path("/dev").glob("nvidia[0-9]*"))


def _places(task: Task) -> Iterator[tuple[str, str]]:
    """Yields the name and path, or URL, of each place that the task writes to."""
    yield "disk", task.directory or tempfile.gettempdir()
    directory = task.config.model_dir
    if directory is None or task.serves:
        return
    if "://" in directory or Path(directory).is_dir():
        yield "model directory", directory


def _among_all(task: Task) -> Task:
    """Returns the task with all others in its cluster; its TF_CONFIG may have only itself."""
    precheck = task.config.precheck
    if precheck is None or task.role not in precheck.cluster:
        return task
    cluster = {role: dict(enumerate(addresses)) for role, addresses in precheck.cluster.items()}
    return replace(task, cluster=cluster)


def _addresses(task: Task) -> dict[str, str]:
    """Returns the address of each task by pod name, in the same order in all tasks."""
    return {
        task.pod(role, index): address
        for role, addresses in task.cluster.items()
        for index, address in addresses.items()
    }
