"""The two servers of the data service: TensorFlow's dispatcher, and a data worker, which carries out
train_dataset() for the tasks that train. Neither imports the user's program: they get its dataset as a graph.

TensorFlow has no message that tells them to leave. So the task whose end is the run's end registers a
dataset of a fixed name, whose element is called as the run's outcome, and both ask the dispatcher for it
every second.

https://www.tensorflow.org/api_docs/python/tf/data/experimental/service
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.contract.exit_codes import ExitCode
from worker.contract.records import Done, Ready, Waiting, WasReleased
from worker.contract.run_config import DataService
from worker.contract.task_names import DISPATCHER, pod_name
from worker.failures import Failure, lost_chief, program_error
from worker.imports import import_tensorflow
from worker.input import until_exit
from worker.peers import probes
from worker.peers.chief_watch import ChiefWatch
from worker.process.watch import Watch, stalled
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import data_dispatcher

_RELEASED = "tf-launcher-released"
_ASK_SECONDS = 1.0
_POLL_SECONDS = 0.1
_OUTLIVE_SECONDS = 20.0
"""For how long the dispatcher waits for the data workers to leave before it."""
_REGISTER_SECONDS = 20.0
"""For how long `release` waits for a dispatcher that restarts."""
_HUNG_SECONDS = 60.0
_HEARTBEAT_MS = 2_000
_LOST_SECONDS = 20.0
"""For how long the end of a pass waits for a data worker that is not there. TensorFlow waits for ever."""
_LOOK_SECONDS = 0.5
_UNUSED_JOB_MS = 60_000
"""A job that nobody has read for this time is deleted: that of a training task that was started anew."""


def serve(task: Task, reporter: Reporter, watch: Watch) -> int:
    """Runs the server of this task's role. Returns the exit code."""
    service = task.config.data_service
    if service is None or task.address is None:
        raise program_error(f"{task.role}: the run has no spec.dataService")
    import_tensorflow(keras=False)
    server = (
        _dispatcher(task, service, reporter)
        if task.role == DISPATCHER
        else _worker(task, service, reporter, watch)
    )
    until_exit.keep(server)
    reporter.emit(Ready())
    if task.role == DISPATCHER and service.sharding in ("DYNAMIC", "OFF"):
        threading.Thread(target=_end_passes, args=(service,), name="end-passes", daemon=True).start()
    watch.expect(stalled("serving", min(_HUNG_SECONDS, task.config.stall_seconds / 2)))
    outcome = _until_released(task, service, watch)
    reporter.emit(WasReleased(outcome))
    if task.role == DISPATCHER:
        _outlive(service, watch)
        shutil.rmtree(_journal(task), ignore_errors=True)
    reporter.emit(Done())
    return ExitCode.DONE


def release(service: DataService, outcome: str) -> bool:
    """Tells the data service that the run has this `outcome`, "done" or "failed". Returns whether the
    dispatcher has heard it. It waits for at most `_REGISTER_SECONDS`.
    """
    import tensorflow as tf

    heard = threading.Event()

    def register() -> None:
        marker = tf.data.Dataset.from_tensors({outcome: True})
        try:
            _service().register_dataset(_target(service), marker, dataset_id=_RELEASED)
        except (tf.errors.OpError, ValueError) as error:
            if not isinstance(error, tf.errors.AlreadyExistsError):
                return
        heard.set()

    # TensorFlow would wait for ever for a dispatcher that is gone.
    deadline = time.monotonic() + _REGISTER_SECONDS
    while probes.fault(service.dispatcher) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    threading.Thread(target=register, name="release", daemon=True).start()
    return heard.wait(max(1.0, deadline - time.monotonic()))


def _dispatcher(task: Task, service: DataService, reporter: Reporter) -> Any:
    import tensorflow as tf

    journal = _journal(task)
    try:
        return _start(task, service, journal)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        if not journal.exists():
            raise
        reason = str(error).splitlines()[0]
        reporter.notice(f"the journal {journal} cannot be read ({reason}): the dispatcher starts without it")
        shutil.rmtree(journal)
        return _start(task, service, journal)


def _start(task: Task, service: DataService, journal: Path) -> Any:
    config = _service().DispatcherConfig(
        port=_port(task),
        work_dir=str(journal),
        fault_tolerant_mode=True,
        # Fixed parts are given to fixed data workers, which the dispatcher must know before they come.
        worker_addresses=list(service.workers) if service.sharding not in ("DYNAMIC", "OFF") else None,
        job_gc_check_interval_ms=_UNUSED_JOB_MS // 6,
        job_gc_timeout_ms=_UNUSED_JOB_MS,
    )
    journal.mkdir(parents=True, exist_ok=True)
    return _service().DispatchServer(config)


def _worker(task: Task, service: DataService, reporter: Reporter, watch: Watch) -> Any:
    deadline = task.config.starting_deadline_seconds

    def report(reasons: Mapping[str, str], waited: float) -> None:
        by_reason = {reason: [name] for name, reason in reasons.items()}
        reporter.emit(Waiting(list(reasons), round(waited, 1), deadline, by_reason))

    dispatcher = pod_name(task.config.run, DISPATCHER, 0)
    try:
        probes.wait({dispatcher: service.dispatcher}, deadline, report, watch.alive)
    except probes.Unanswered as error:
        raise Failure(f"{error} (startingDeadlineSeconds)", ExitCode.RETRYABLE) from error
    config = _service().WorkerConfig(
        dispatcher_address=service.dispatcher,
        worker_address=task.address,
        port=_port(task),
        heartbeat_interval_ms=_HEARTBEAT_MS,
        dispatcher_timeout_ms=int(deadline * 1000),
    )
    return _service().WorkerServer(config)


def _end_passes(service: DataService) -> None:
    """Has a pass end without the data workers that were lost. Each pass has a task for each data worker that
    has ever come, and is over when all have finished theirs. A lost one may still come back to a pass that
    lasts for hours, so its task is ended only when the others have finished.

    Not where each data worker has a fixed part of the data, which only that one can give.
    """
    away: dict[str, float] = {}
    address = service.dispatcher
    while True:
        time.sleep(_LOOK_SECONDS)
        try:
            known = data_dispatcher.workers(address)
            now = time.monotonic()
            for worker in known:
                if probes.connects(worker):
                    away.pop(worker, None)
                else:
                    away.setdefault(worker, now)
            lost = [worker for worker in known if now - away.get(worker, now) >= _LOST_SECONDS]
            if not lost or len(away) == len(known):
                continue
            # First theirs: a pass that begins meanwhile is not taken for one that the others have finished.
            waiting = [(worker, data_dispatcher.unfinished(address, worker)) for worker in lost]
            others = [data_dispatcher.unfinished(address, worker) for worker in known if worker not in lost]
            going_on = {task.iteration for tasks in others for task in tasks}
            for worker, tasks in waiting:
                for task in tasks:
                    if task.iteration not in going_on:
                        data_dispatcher.finish(address, worker, task.task)
        except data_dispatcher.UnansweredError:
            continue


def _until_released(task: Task, service: DataService, watch: Watch) -> str:
    """Returns the outcome."""
    heard: list[str] = []

    def ask() -> None:
        while not heard:
            outcome = _outcome(service)
            if outcome:
                heard.append(outcome)
            time.sleep(_ASK_SECONDS)

    threading.Thread(target=ask, name="release", daemon=True).start()
    config = task.config
    primary = ChiefWatch(service.primary, config.chief_lost_seconds, config.starting_deadline_seconds)
    while not heard:
        if primary.lost:
            raise lost_chief(config.chief_lost_seconds, "the task that trains")
        watch.alive()
        time.sleep(_POLL_SECONDS)
    return heard[0]


def _outcome(service: DataService) -> str:
    """Returns "" while the run goes on, or the dispatcher does not answer."""
    import tensorflow as tf

    if probes.fault(service.dispatcher) is not None:
        return ""
    policy = _service().ShardingPolicy.OFF
    try:
        marker = _service().from_dataset_id(policy, _target(service), _RELEASED)
    except (tf.errors.OpError, ValueError):
        return ""
    return str(next(iter(marker.element_spec), ""))


def _outlive(service: DataService, watch: Watch) -> None:
    """Waits until no data worker is there, since they ask the dispatcher whether to leave."""
    deadline = time.monotonic() + _OUTLIVE_SECONDS
    every = [*service.workers, *service.more]
    while time.monotonic() < deadline and any(map(probes.connects, every)):
        watch.alive()
        time.sleep(_POLL_SECONDS)


def _journal(task: Task) -> Path:
    """Returns the directory of the dispatcher's journal: in the model directory, which outlives the pod,
    where that is a path. A store behind a URL would copy the whole file for each entry.
    """
    directory = task.config.model_dir
    if not directory or "://" in directory:
        return Path(task.directory or ".") / "data-service"
    return Path(directory) / "data-service" / (task.config.run_id or task.config.run)


def _port(task: Task) -> int:
    return probes.split(task.address or "")[1]


def _target(service: DataService) -> str:
    return f"grpc://{service.dispatcher}"


def _service() -> Any:
    import tensorflow as tf

    return tf.data.experimental.service
