"""A run as `status -o json` and `list -o json` print it. The schema is stable: fields may be added, but none
changes its meaning. If one must, `apiVersion` changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from launcher.backends import precheck_outliers
from launcher.backends.base import Place
from launcher.object_names import ROLE_LABEL
from launcher.status import RoleStatus, RunStatus, TaskStatus, latest, latest_with_time
from launcher.task_records import checkpoint_age
from worker.contract import records
from worker.contract.records import Content

API_VERSION = "launcher/v1alpha1"

_OF_A_ROLE = (ROLE_LABEL, "app.kubernetes.io/component")
"""Labels of the primary Job that are not the run's."""

Time = Annotated[datetime, Field(description="RFC 3339, UTC.")]
Number = int | float | str
"""A metric that is not finite is a text: `nan`, `inf`."""


D = TypeVar("D", bound=BaseModel)


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Progress(_Model):
    """The training's progress, as the primary's first task last reported it."""

    epoch: int = Field(description="From 1.")
    epochs: int = Field(description="How many there will be.")
    step: int = Field(description="Within the epoch.")
    steps: int | None = Field(description="Of an epoch; null where that is not known.")
    steps_per_second: Number | None = Field(description="Of the last report.")
    loss: Number | None = Field(description="Null before it is known.")
    metrics: dict[str, Number] = Field(description="By name.")
    learning_rate: Number | None = Field(description="At the end of an epoch; null within one.")
    time: Time = Field(description="When that was said.")


class Checkpoint(_Model):
    """The newest checkpoint of the training."""

    epochs: int = Field(description="That it has, whole.")
    steps: int = Field(description="Of the next epoch.")
    taken: Time | None = Field(description="As of when; null where there is none yet.")
    every_seconds: float | None = Field(description="To the next one; null where steps decide.")
    failing_since: Time | None = Field(description="Since when newer ones cannot be written; else null.")
    problem: str = Field(description='Why not; "" where they can.')
    time: Time = Field(description="When that was said.")


class AtStake(_Model):
    """What a kill would cost now."""

    seconds: float = Field(description="Of work since the newest checkpoint.")
    steps: int | None = Field(description="As far as they were reported; null where that is not known.")


class Evaluation(_Model):
    """The last score of a checkpoint."""

    epoch: int | None = Field(description="After which it was saved; null where that is not known.")
    checkpoint: str = Field(description="Its name.")
    metrics: dict[str, Number] = Field(description="By name, with the loss.")
    time: Time = Field(description="When that was said.")


class Membership(_Model):
    """Which workers of an elastic run take part, as its primary task last reported it."""

    workers: list[int] = Field(description="Their numbers, ascending.")
    generation: int | None = Field(
        description="Of a collective: how often the workers have changed; null under ParameterServer."
    )
    time: Time = Field(description="When that was said.")


class Role(_Model):
    """A role and its Job."""

    role: str = Field(description="chief, worker, ps or evaluator.")
    phase: str = Field(description="As the run's.")
    replicas: int = Field(description="Tasks that there are to be; `scale` changes those of elastic workers.")
    min_replicas: int | None = Field(description="Of elastic workers: how many the run needs; else null.")
    max_replicas: int | None = Field(description="Of elastic workers: how many there may be; else null.")
    ready: int = Field(description="Tasks that run.")
    succeeded: int = Field(description="Tasks that have succeeded.")
    failed: int = Field(description="Pods that have failed, those that were replaced too.")
    restarts: int = Field(description="Pods that took another's place.")
    restarts_in_place: int = Field(description="How often its latest pods have started a process again.")
    reason: str = Field(description="Of its end, or why tasks do not start: one word.")
    message: str = Field(description="The same as a sentence.")


class Precheck(_Model):
    """What a task has measured of its node before it trained, where spec.precheck asks for it."""

    seconds: float = Field(description="That it took.")
    compute: dict[str, Number] = Field(description="GFLOP/s, by device.")
    storage: dict[str, Number] = Field(description="MB/s, by place and direction.")
    bandwidth: dict[str, Number] = Field(description="MB/s, by the task at the other end.")
    latency: dict[str, Number] = Field(description="Milliseconds there and back, by the task there.")
    far_off: str = Field(description='What sets it apart from the other tasks; "" where nothing does.')


class Task(_Model):
    """A task and its latest pod."""

    name: str = Field(description="Its stable hostname.")
    role: str = Field(description="Its role.")
    index: int = Field(description="Within the role, from 0.")
    phase: str = Field(description="Pending, Running, Succeeded or Failed.")
    pod: str = Field(description="The pod's name.")
    node: str = Field(description='The node\'s; "" before there is one.')
    restarts: int = Field(description="How many pods it has had before.")
    restarts_in_place: int = Field(description="How often its pod has started the process again.")
    exit_code: int | None = Field(description="Null while it runs.")
    reason: str = Field(description="Of its state: one word.")
    message: str = Field(description="The same as a sentence.")
    creation_time: Time | None = Field(description="When the pod was made.")
    start_time: Time | None = Field(description="When its process began.")
    completion_time: Time | None = Field(description="When that ended.")
    precheck: Precheck | None = Field(description="Null where it has measured nothing.")


class Metadata(_Model):
    """The run's name, namespace and labels."""

    name: str = Field(description="The run's.")
    namespace: str = Field(description="Where it lives.")
    labels: dict[str, str] = Field(description="Those of its objects, ours among them.")
    creation_timestamp: Time | None = Field(description="When it was submitted.")


class Status(_Model):
    """The run's state."""

    phase: Literal["Pending", "Running", "Suspended", "Succeeded", "Failed", "Lost", "Broken"] = Field(
        description="The primary role's. Lost: its supervisor on this machine is gone. Broken: its files on "
        "this machine cannot be read."
    )
    ended: bool = Field(description="Whether every role has.")
    reason: str = Field(description="Of its end, or why it waits: one word.")
    message: str = Field(description="The same as a sentence.")
    start_time: Time | None = Field(description="When its first task started.")
    completion_time: Time | None = Field(description="When the primary role ended.")
    duration_seconds: float | None = Field(description="From its start until its end, or now.")
    progress: Progress | None = Field(description="Of the training; null before it begins.")
    checkpoint: Checkpoint | None = Field(description="Null before there is one.")
    at_stake: AtStake | None = Field(
        description="Null in a run that does not train now, or has no checkpoint."
    )
    evaluation: Evaluation | None = Field(description="Null before there is one.")
    membership: Membership | None = Field(description="Null in a run that is not elastic, or has not begun.")
    export: str | None = Field(description="Where the exported model is, as the tasks see it.")
    model_directory: str | None = Field(description="As the command status says; null in a list.")
    roles: list[Role] = Field(description="The primary first.")
    tasks: list[Task] = Field(description="Those that have had a pod, by role and index.")


class Run(_Model):
    """One run: `status -o json`."""

    api_version: Literal["launcher/v1alpha1"] = Field(description="Of this document.")
    kind: Literal["Run"] = Field(description="Of this document.")
    metadata: Metadata
    backend: Literal["local", "kubernetes"] = Field(description="On this machine, or in a cluster.")
    context: str | None = Field(description="The kubeconfig's; null on this machine, and within a cluster.")
    status: Status


class RunList(_Model):
    """Several runs: `list -o json`."""

    api_version: Literal["launcher/v1alpha1"] = Field(description="Of this document.")
    kind: Literal["RunList"] = Field(description="Of this document.")
    items: list[Run] = Field(description="By place, namespace and name.")


def of_run(status: RunStatus, place: Place, now: float, model_directory: str | None = None) -> dict[str, Any]:
    """Returns the document of a run, as JSON values."""
    until = status.finished or now
    exported = latest(status.records, records.Exported)
    lost = checkpoint_age.at_stake(status, now)
    document = Run(
        api_version=API_VERSION,
        kind="Run",
        metadata=Metadata(
            name=status.run,
            namespace=status.namespace,
            labels={name: value for name, value in status.labels.items() if name not in _OF_A_ROLE},
            creation_timestamp=_time_or_null(status.created),
        ),
        backend=place.backend,
        context=place.context or None,
        status=Status(
            phase=status.phase.value,
            ended=status.ended,
            reason=status.reason,
            message=status.message,
            start_time=_time_or_null(status.started),
            completion_time=_time_or_null(status.finished),
            duration_seconds=None if status.started is None else round(max(0.0, until - status.started), 3),
            progress=_of_record(Progress, records.Progress, status),
            checkpoint=_checkpoint(status),
            at_stake=None if lost is None else AtStake(seconds=round(lost.seconds, 3), steps=lost.steps),
            evaluation=_of_record(Evaluation, records.Evaluation, status),
            membership=_of_record(Membership, records.MembershipRecord, status),
            export=None if exported is None else exported.path,
            model_directory=model_directory,
            roles=[_role(role, status) for role in status.roles],
            tasks=_tasks(status),
        ),
    )
    return document.model_dump(mode="json", by_alias=True)


def _checkpoint(status: RunStatus) -> Checkpoint | None:
    newest = latest_with_time(status.records, records.Checkpoint)
    if newest is None:
        return None
    checkpoint, at = newest
    return Checkpoint(
        epochs=checkpoint.epochs,
        steps=checkpoint.steps,
        taken=_time_or_null(checkpoint.taken or None),
        every_seconds=checkpoint.every_seconds or None,
        failing_since=_time_or_null(checkpoint.failing_since or None),
        problem=checkpoint.problem,
        time=_time(at),
    )


def of_runs(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the list of such documents."""
    return {"apiVersion": API_VERSION, "kind": "RunList", "items": list(documents)}


def schema(model: type[Run] | type[RunList]) -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of `model`."""
    made = model.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), timezone.utc)


def _time_or_null(seconds: float | None) -> datetime | None:
    return None if seconds is None else _time(seconds)


def _role(role: RoleStatus, status: RunStatus) -> Role:
    return _copied(
        Role,
        role,
        phase=role.phase.value,
        replicas=role.desired,
        min_replicas=role.elastic.min if role.elastic is not None else None,
        max_replicas=role.elastic.max if role.elastic is not None else None,
        restarts_in_place=status.restarts_in_place(role.role),
    )


def _tasks(status: RunStatus) -> list[Task]:
    measured = precheck_outliers.measured(status)
    far_off = {each.task: each.text for each in precheck_outliers.of_run(status)}
    prechecks = {
        name: _copied(Precheck, content, far_off=far_off.get(name, "")) for name, content in measured.items()
    }
    return [_task(task, status, prechecks.get(task.name)) for task in status.tasks]


def _task(task: TaskStatus, status: RunStatus, precheck: Precheck | None) -> Task:
    return _copied(
        Task,
        task,
        phase=task.phase.value,
        restarts_in_place=status.restarts_in_place(task.role, task.index),
        creation_time=_time_or_null(task.created),
        start_time=_time_or_null(task.running),
        completion_time=_time_or_null(task.finished),
        precheck=precheck,
    )


def _of_record(model: type[D], kind: type[Content], status: RunStatus) -> D | None:
    """Returns what the newest record of this kind says, as far as the model has it; None without one."""
    newest = latest_with_time(status.records, kind)
    return None if newest is None else _copied(model, newest[0], time=_time(newest[1]))


def _copied(model: type[D], source: object, **others: Any) -> D:
    """Returns the model with the attributes of `source` that its fields are named for, and the others."""
    same = {name: getattr(source, name) for name in model.model_fields if name not in others}
    return model(**same, **others)


def print_document(document: Mapping[str, Any], output: str, *, in_a_line: bool = False) -> None:
    """Prints a document of one of FORMS' json and yaml."""
    from launcher.plan import serialization

    if output == "yaml":
        text = serialization.as_yaml([document])
        print(text if in_a_line else text.removeprefix("---\n"), end="", flush=True)
    else:
        print(json.dumps(document, indent=None if in_a_line else 2), flush=True)
