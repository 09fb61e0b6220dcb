"""`python -m worker` finds out which task this process is, and runs that task.

It imports TensorFlow only after the environment variables are set, and after the training task has forked its
supervisor.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from worker import scripts
from worker.cluster import server
from worker.contract import GRPC_FAIL_FAST, VERSION, Doing
from worker.failures import Failure, classify, program_error
from worker.imports import import_tensorflow
from worker.process import supervisor
from worker.reporting import Reporter
from worker.task import Task, from_environment

_DEFAULTS = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code, or leaves with it."""
    reporter = Reporter(socket.gethostname())
    try:
        script = scripts.parse(arguments)
        task = from_environment()
        _check_version(task)
    except Failure as failure:
        reporter.failed(failure)
        print(f"worker: {failure.message}", file=sys.stderr)
        return failure.exit_code
    prepare_environment(task.config.keras)
    # The role decides, as TFConfigClusterResolver().task_type does, but before TensorFlow is imported.
    seconds = max(task.config.stall_seconds, task.config.starting_deadline_seconds)
    first = supervisor.stalled("starting", seconds)
    part, peers = _part(task, script)
    return supervisor.supervise(part, first, task.name, peers, task.grace_seconds)


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


def _part(task: Task, script: Sequence[str]) -> tuple[Callable[[supervisor.Watch], int], Mapping[str, str]]:
    """Returns the function that the task runs, and the peers that it may wait for."""
    if task.serves:
        return lambda watch: _run(task, partial(_serve, watch=watch)), {}
    if script:
        return lambda watch: scripts.run(task, watch, script), task.peers
    if task.role == "evaluator":
        return lambda watch: _run(task, partial(_evaluate, watch=watch)), {}
    return lambda watch: _train(task, watch), task.peers


def prepare_environment(keras: int | None) -> None:
    """Sets the variables that TensorFlow reads at import. `keras` is the spec's; for None the
    image decides.
    """
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


def _run(task: Task, body: Callable[[Task, Reporter], int]) -> int:
    server.leave_on_signal()
    reporter = Reporter(task.name)
    try:
        code = body(task, reporter)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises must be told
        failure = classify(error, "starting")
        reporter.failed(failure)
        code = failure.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's threads may outlive the work, and this process does not wait for them.
    os._exit(code)


def _serve(task: Task, reporter: Reporter, watch: supervisor.Watch) -> int:
    server.forget_release(task)
    reporter.emit(Doing("importing TensorFlow"))
    return server.serve(task, reporter, watch)


def _evaluate(task: Task, reporter: Reporter, watch: supervisor.Watch) -> int:
    from worker import program
    from worker.process import activity

    # The task waits for no other, so an evaluation may take any time; but a frozen process must be replaced.
    doing = activity.Activity(supervisor.Watch(), reporter, 0.0, 0.0)
    watch.expect(supervisor.stalled("evaluating", task.config.stall_seconds))
    watch.beat()
    roots = program.user_roots(task.source)
    try:
        doing.enter("importing TensorFlow")
        import_tensorflow(keras=True)
        from worker.cluster import devices
        from worker.evaluation.sidecar import Evaluator

        devices.check(task)
        devices.report(task, reporter)
        doing.enter(f"importing {task.config.entrypoint}")
        loaded = program.load(task.config.entrypoint, task.source, task.config.parameters)
        roots = loaded.roots
        return Evaluator(task, loaded, reporter, doing.enter).run()
    except Exception as error:
        raise classify(error, doing.doing, roots) from error


def _train(task: Task, watch: supervisor.Watch) -> int:
    server.leave_on_signal()
    from worker.training.trainer import train

    return train(task, watch)
