"""What is asked of a run's tasks while they run, their stacks and a profile: see `worker.contract.orders`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from launcher.backends import run_facts
from launcher.backends.base import PROGRAM, Backend, Selection
from launcher.errors import BackendError, ConflictError, LauncherError, Problem, SpecError
from launcher.status import Phase, RunStatus, TaskStatus
from launcher.task_records import task_activity
from worker.contract import orders

_AT_A_TIME: Final = 8
_LONGEST: Final = 1 << 24
"""Bytes of an answer."""
_STACKS_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Stacks:
    """The Python stacks of all threads of a task's training process, as faulthandler writes them: the most
    recent call first. Where `text` is empty, `problem` says why.
    """

    task: str
    node: str
    text: str
    problem: str = ""


@dataclass(frozen=True)
class Profile:
    """A profile of `steps` steps, of which the first was the run's `first`-th, in the folder `path` of the
    model directory. `tasks` are the pods that are in it; `problems` says why others are not.
    """

    path: str
    first: int
    steps: int
    tasks: Sequence[str]
    problems: Mapping[str, str]


def stacks(backend: Backend, run: str, namespace: str, names: Sequence[str]) -> list[Stacks]:
    """The stacks of the run's tasks, or of those that are named as `logs` takes them. Raises NotFoundError
    for a task that the run does not have, ConflictError where none of them runs.
    """
    status = backend.status(run, namespace)
    selection = Selection(names=names)
    pods = [(task.role, task.index, task.pod or task.name) for task in status.tasks]
    selection.check(run, {role.role: role.desired for role in status.roles}, pods)
    chosen = [
        task
        for task, (role, index, pod) in zip(status.tasks, pods, strict=True)
        if task.phase is Phase.RUNNING and selection.takes(run, role, index, pod)
    ]
    if not chosen:
        raise ConflictError(
            f"run {run}: no task that is meant is running", _how_it_is(backend, run, namespace)
        )

    def shown(task: TaskStatus) -> Stacks:
        name = f"{task.role}-{task.index}"
        try:
            answer = _ask(backend, run, namespace, task, {"order": orders.STACKS}, _STACKS_SECONDS)
        except LauncherError as error:
            return Stacks(name, task.node, "", str(error).replace("\n", ": "))
        return Stacks(name, task.node, str(answer.get("stacks", "")), str(answer.get("problem", "")))

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(shown, chosen))


def profile(backend: Backend, run: str, namespace: str, steps: int, seconds: float) -> Profile:
    """Has the tasks that train profile the next `steps` steps, and waits for that. Raises ConflictError where
    the run has no model directory or does not train now, or after so many seconds; SpecError for a number of
    steps that is too large.
    """
    if not 1 <= steps <= orders.MOST_STEPS:
        message = f"expected a number from 1 to {orders.MOST_STEPS:,}, not {steps}"
        raise SpecError([Problem("launcher", 0, 0, "steps", message)])
    status = backend.status(run, namespace)
    first = next((task for task in status.tasks if _is_first(status, task)), None)
    if status.ended or first is None or first.phase is not Phase.RUNNING:
        state = "has ended" if status.ended else f"is {status.phase}"
        raise ConflictError(
            f"run {run} {state}, and steps can be profiled only while they are taken",
            _how_it_is(backend, run, namespace),
        )
    if "model directory" not in backend.places(run, namespace):
        raise run_facts.no_model_directory(run, "write a profile to")
    order = {"order": orders.PROFILE, "steps": steps}
    answer = _ask(backend, run, namespace, first, order, seconds)
    if "problem" in answer:
        doing = task_activity.of_task(first, status.records.get(first.name, {}))
        raise ConflictError(
            f"run {run} gives no profile: {first.role}-{first.index}: {answer['problem']}"
            + (f" ({doing})" if doing else ""),
            "Ask again while it trains. A script with a loop of its own calls tf.profiler.experimental "
            "itself.",
        )
    try:
        return Profile(
            path=str(answer["path"]),
            first=int(answer["first"]),
            steps=int(answer["steps"]),
            tasks=[str(name) for name in answer["tasks"]],
            problems={str(name): str(why) for name, why in answer["problems"].items()},
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _not_understood(run, first) from error


def _is_first(status: RunStatus, task: TaskStatus) -> bool:
    return task.role == status.primary.role and task.index == 0


def _how_it_is(backend: Backend, run: str, namespace: str) -> str:
    return f"`{PROGRAM} status {run}{backend.options(namespace)}` says how it is."


def _ask(
    backend: Backend, run: str, namespace: str, task: TaskStatus, order: Mapping[str, Any], seconds: float
) -> Mapping[str, Any]:
    """The task's answer, for which it has so many seconds."""
    until = time.monotonic() + seconds
    with backend.supervisor(run, namespace, task) as connection:
        try:
            connection.sendall(json.dumps({"task": task.name, **order}).encode() + b"\n")
            with connection.makefile("rb") as file:
                while (line := file.readline(_LONGEST)) == b"\n":
                    if time.monotonic() > until:
                        raise ConflictError(
                            f"{task.role}-{task.index} of run {run} has no answer after {seconds:g} s",
                            "--timeout 30m waits longer.",
                        )
                answer = json.loads(line) if line else None
        except (OSError, ValueError) as error:
            raise _not_understood(run, task) from error
    if not isinstance(answer, dict):
        raise _not_understood(run, task)
    return answer


def _not_understood(run: str, task: TaskStatus) -> BackendError:
    return BackendError(
        f"{task.role}-{task.index} of run {run} does not answer",
        "It has ended meanwhile, has no runtime of this version, or shares its host's network with another.",
    )
