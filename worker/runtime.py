"""`python -m worker` finds out which task this process is, and runs that task.

It imports TensorFlow only after the environment variables are set, and in a process that the task's
supervisor has started.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from worker import own_strategy_scripts, packages, sources
from worker.buckets import prefetch
from worker.buckets.bucket import check_library, is_bucket
from worker.collective.elastic_rendezvous import Elastic
from worker.contract.environment import GIT_KEYS, GRPC_FAIL_FAST, Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Doing, Done
from worker.contract.task_names import DATA_WORKER, DISPATCHER
from worker.contract.version import VERSION
from worker.failures import Failure, classify, program_error
from worker.imports import import_tensorflow
from worker.parameter_server import server
from worker.peers import admitted_alone
from worker.precheck import measurements
from worker.process.processors import thread_variables
from worker.process.sigterm import leave_on_signal
from worker.process.watch import Watch, stalled
from worker.reporting import Reporter
from worker.script import legacy_keras
from worker.supervisor import starter, supervisor
from worker.supervisor.metrics import Metrics
from worker.supervisor.state import Limits
from worker.task import Task, from_environment
from worker.tracking import own_calls

_DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # Memory of a GPU is taken when it is needed. A server has no other switch for it, nor a user's script.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
_AGAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from worker import runtime; runtime.start_training(sys.argv[1:])"
)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code, or leaves with it."""
    reporter = Reporter(socket.gethostname())
    environment = dict(os.environ)  # TF_CONFIG may become too long for another program's environment
    try:
        script = own_strategy_scripts.parse(arguments)
        task = from_environment()
        _check_version(task)
        _check_bucket(task)
        if task.is_extra:
            leave_on_signal()
            admitted_alone.wait_for_chief(task, lambda doing: reporter.emit(Doing(doing)))
        environment.update(prepare_program(task, reporter))
    except Failure as failure:
        reporter.failed(failure)
        print(f"worker: {failure.message}", file=sys.stderr)
        return failure.exit_code
    variables, tracker = own_calls.prepare(task, reporter)
    os.environ.update(variables)
    environment.update(variables)
    prepare_environment(task.config.keras, task.script)
    threads = thread_variables(task.config.cpu_requests.get(task.role), os.environ)
    os.environ.update(threads)
    environment.update(threads)
    if task.config.precheck is not None:
        code = measurements.run(task, reporter, environment)
        if code is not None or task.config.precheck.only:
            return code or ExitCode.DONE
    # The role decides, as TFConfigClusterResolver().task_type does, but before TensorFlow is imported.
    seconds = max(task.config.stall_seconds, task.config.starting_deadline_seconds)
    first = stalled("starting", seconds)
    again = [sys.executable, "-c", _AGAIN, json.dumps(sys.path), *arguments]
    work = replace(_work(task, script), again=again, environment=environment)
    elastic = _elastic(task)
    collective = task.config.is_collective and task.config.mode != "Predict"
    collective = collective and elastic is None
    limits = Limits(task.grace_seconds, task.config.restarts_in_place, collective)
    peers = {} if task.serves else task.peers
    metrics = Metrics({"run": task.config.run, "role": task.role, "task": task.name})
    return supervisor.supervise(
        work, first, task.name, peers, limits, elastic, metrics, task.directory, tracker
    )


def start_training(arguments: Sequence[str]) -> NoReturn:
    """Starts training processes for a supervisor that has lost its starter. The last six arguments are the
    pipes and the supervisor's process id.
    """
    *worker_arguments, orders, reports, signs, asked, stacks, parent = arguments
    pipes = starter.Pipes(*map(int, (orders, reports, signs, asked, stacks)))
    task = from_environment()
    prepare_environment(task.config.keras, task.script)
    work = _work(task, own_strategy_scripts.parse(worker_arguments))
    starter.serve(work, pipes, int(parent))


def _check_version(task: Task) -> None:
    """Raises Failure where launcher and runtime have different versions. A runtime that travels always has
    the same.
    """
    if task.config.version != VERSION:
        made = f"tf-launcher {task.config.version}" if task.config.version else "an earlier tf-launcher"
        raise program_error(
            f"the image has the worker runtime of tf-launcher {VERSION}, and {made} has made the run: use an "
            "image of the launcher's version (spec.image, or the role's own), or spec.runtime: Travels, by "
            "which the launcher sends its own"
        )


def _check_bucket(task: Task) -> None:
    """Raises Failure where this task needs a library for a bucket and the image lacks it."""
    if task.config.trained is None or task.role in (DISPATCHER, "ps"):
        return
    directory, data = task.config.model_dir or "", prefetch.bucket_of(task.config.parameters)
    if data is not None:
        check_library(data)
    if is_bucket(directory) and not task.serves and task.role != DATA_WORKER:
        check_library(directory)


def prepare_program(task: Task, reporter: Reporter) -> Mapping[str, str]:
    """Brings the program's source and the packages that it asks for, where this task runs its code. Returns
    the environment variables that were set for it. Raises Failure.
    """
    folder, config = os.environ.get(Env.PACKAGES), task.config
    seconds = float(config.starting_deadline_seconds)

    def say(doing: str) -> None:
        reporter.emit(Doing(doing))

    if config.source is not None and task.source is not None:
        leave_on_signal()
        parts = [each for each in os.environ.get(Env.SOURCE_PARTS, "").split(os.pathsep) if each]
        scratch = Path(task.directory or tempfile.mkdtemp())
        sources.fetch(config.source, parts, task.source, scratch, seconds, say)
        for key in GIT_KEYS:
            os.environ.pop(key, None)
    if not config.packages or not folder:
        return {}
    variables = packages.install(config.packages, Path(folder), seconds, say)
    os.environ.update(variables)
    return variables


def _work(task: Task, script: Sequence[str]) -> starter.Work:
    """Returns what the task does."""
    forks = task.config.restarts_in_place > 0 or _elastic(task) is not None
    if script and not task.serves:
        # It may set variables that TensorFlow reads at its import.
        return starter.Work(lambda watch: own_strategy_scripts.run(task, watch, script), forks=forks)
    # If there is at most one training process, a preload would only cost memory.
    preload = partial(_preload, task) if forks else None
    if task.role in (DISPATCHER, DATA_WORKER):
        return starter.Work(lambda watch: _run(task, watch, _serve_data), preload, forks)
    if task.serves:
        return starter.Work(lambda watch: _run(task, watch, _serve), preload, forks)
    if task.role == "evaluator":
        return starter.Work(lambda watch: _run(task, watch, _evaluate), preload, forks)
    return starter.Work(lambda watch: _train(task, watch), preload, forks)


def _elastic(task: Task) -> Elastic | None:
    """Returns what the supervisor needs in an elastic collective, None elsewhere."""
    trains = task.role in ("chief", "worker") and task.config.is_collective
    if task.elastic is None or not trains or task.address is None:
        return None
    return Elastic(
        name=task.name,
        role=task.role,
        index=task.index,
        address=task.address,
        chief=task.cluster["chief"][0],
        workers=task.elastic,
        seconds=admitted_alone.patience(task, task.config.starting_deadline_seconds),
        stop_seconds=task.config.stall_seconds,
        is_extra=task.is_extra,
    )


def _preload(task: Task) -> None:
    """Imports TensorFlow for all training processes to come."""
    Reporter(task.name).emit(Doing("importing TensorFlow"))
    import_tensorflow(keras=not (task.serves or task.role in (DISPATCHER, DATA_WORKER)))


def prepare_environment(keras: int | None, script: Path | None = None) -> None:
    """Sets the variables that TensorFlow reads at import. `keras` is the spec's; for None the
    image decides, and for a `script` what decides for `python SCRIPT`.
    """
    if script is not None and keras is None:
        keras = 2 if legacy_keras.chosen(script) in ("1", "true", "True") else 3
    os.environ.update([GRPC_FAIL_FAST])
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # The package behind tf.keras: keras, or tf_keras.
    is_3 = keras == 3 or (keras is None and importlib.util.find_spec("tf_keras") is None)
    os.environ["TF_USE_LEGACY_KERAS"] = "0" if is_3 else "1"
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] >= "2":
        # TensorFlow logs an error several times, and also raises it.
        logging.getLogger("tensorflow").setLevel(logging.CRITICAL)
        sys.unraisablehook = _unraisable


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Drops the errors that executors of a lost worker raise when they are garbage-collected."""
    if "Executor.__del__" not in getattr(unraisable.object, "__qualname__", ""):
        sys.__unraisablehook__(unraisable)


def _run(task: Task, watch: Watch, body: Callable[[Task, Reporter, Watch], int]) -> int:
    leave_on_signal()
    reporter = Reporter(task.name, watch.tell)
    try:
        code = body(task, reporter, watch)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises must be told
        failure = classify(error, "starting")
        if not failure.in_place:
            watch.stay_down()
        reporter.failed(failure)
        code = failure.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's threads may outlive the work, and this process does not wait for them.
    os._exit(code)


def _serve(task: Task, reporter: Reporter, watch: Watch) -> int:
    server.forget_release(task)
    if task.role == "worker":  # which carries out the data's graph
        _fetch(task, reporter, watch)
    reporter.emit(Doing("importing TensorFlow"))
    import_tensorflow(keras=False)
    from worker.copies.neighbours import hosting

    with hosting(task, os.environ.get(Env.COPIES_DIR)):
        return server.serve(task, reporter, watch)


def _serve_data(task: Task, reporter: Reporter, watch: Watch) -> int:
    from worker.input import data_servers

    if task.role == DATA_WORKER:
        _fetch(task, reporter, watch)
    reporter.emit(Doing("importing TensorFlow"))
    return data_servers.serve(task, reporter, watch)


def _fetch(task: Task, reporter: Reporter, watch: Watch) -> None:
    """Copies data that TensorFlow cannot open to this task's disk."""
    prefetch.fetch(
        task.config.parameters,
        lambda doing: reporter.emit(Doing(doing)),
        patience=float(task.config.stall_seconds),
        notice=reporter.notice,
        alive=watch.alive,
    )


def _evaluate(task: Task, reporter: Reporter, watch: Watch) -> int:
    from worker import program
    from worker.process import activity

    # The task waits for no other, so an evaluation may take any time; but a frozen process must be replaced.
    doing = activity.Activity(Watch(), reporter, 0.0, 0.0)
    watch.expect(stalled("evaluating", task.config.stall_seconds))
    watch.beat()
    roots = program.user_roots(task.source)
    try:
        doing.enter("importing TensorFlow")
        import_tensorflow(keras=True)
        from worker import devices
        from worker.evaluation.sidecar import Evaluator

        devices.check(task)
        devices.prepare(task)
        devices.report(task, reporter)
        if task.config.script is not None:
            from worker.script.evaluator import evaluate

            return evaluate(task, reporter, doing.enter, watch.came_further)
        _fetch(task, reporter, watch)
        doing.enter(f"importing {task.config.entrypoint}")
        loaded = program.load(
            task.config.entrypoint, task.source, prefetch.with_local_data(task.config.parameters)
        )
        roots = loaded.roots
        return Evaluator(task, loaded, reporter, doing.enter, watch.came_further).run()
    except Exception as error:
        raise classify(error, doing.doing, roots) from error


def _introduce(task: Task, reporter: Reporter, watch: Watch) -> int:
    """Says what this task of an elastic collective runs, before it takes part. A chief whose run is over
    already says nothing.
    """
    import_tensorflow(keras=False)
    from worker import devices
    from worker.checkpoints.model_directory import ModelDirectory, is_done
    from worker.parameter_server import admission

    devices.check(task)
    config = task.config
    if task.is_primary and config.model_dir and is_done(ModelDirectory(config.model_dir), config.run_id):
        reporter.notice("this run is done already: its model directory says so")
        reporter.emit(Done())
    else:
        watch.introduce(asdict(admission.own_identity(task)))
    return ExitCode.DONE


def _train(task: Task, watch: Watch) -> int:
    if _elastic(task) is not None:
        task = from_environment()  # its TF_CONFIG is that of the present generation
        if task.generation is None:
            return _run(task, watch, _introduce)
    leave_on_signal()
    if task.config.script is not None:
        from worker.script.run import run

        return run(task, watch)
    from worker.training.trainer import train

    return train(task, watch)
