"""Measures the nodes of a cluster by a run that does nothing else, as `doctor FILE --nodes` does."""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from launcher import plan_of_file
from launcher.backends import precheck_outliers, run_facts
from launcher.backends.base import EVERYONE
from launcher.errors import BackendError, NotFoundError
from launcher.object_names import RUN_LABEL
from launcher.status import Phase, RunStatus, TaskStatus
from launcher.validation import loader
from worker.contract.records import Prechecked
from worker.contract.run_config import Precheck

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.validation.loader import Loaded

_KEPT: Final = ("image", "runtime", "imagePullPolicy", "template", "storage")
"""The fields of the file that say how a pod runs."""
_NOT_FOR_WORKERS: Final = ("replicas", "minReplicas", "maxReplicas", "command", "args")
_OF_BUCKETS: Final = ("endpoint", "region", "secretName")
_ROOM_SECONDS: Final = 60.0
"""After which a pod that has no node gets none, and the others measure without it."""
_PULL_SECONDS: Final = 600.0
"""For the pods that have a node: an image of gigabytes may have to be pulled."""


@dataclass(frozen=True)
class Measured:
    """What was measured on `node`; None where nothing was, for a `reason`. `far_off` says what sets it apart
    from the other nodes, "" where nothing does. `bandwidth` (MB/s) and `latency` (ms) are those of its best
    connection.
    """

    node: str
    content: Prechecked | None
    far_off: str = ""
    reason: str = ""
    bandwidth: float | None = None
    latency: float | None = None


def measure(
    backend: Backend, loaded: Loaded, namespace: str, nodes: int, tell: Callable[[str], None]
) -> list[Measured]:
    """Measures up to `nodes` nodes, each by a pod like a worker's of the file, and removes the pods.

    `tell` gets a sentence when something goes on. Raises BackendError where no pod could measure.
    """
    run = measuring_run(loaded, nodes)
    plan = plan_of_file.submission(run, namespace, namespace)
    cluster = {"worker": plan.addresses}
    # Those that have no room must not hold up the others.
    objects = run_facts.with_config(
        plan.objects,
        precheck=Precheck(cluster, only=True),
        starting_deadline_seconds=round(_ROOM_SECONDS),
    )
    with _removed(backend, plan.run, plan.namespace):
        backend.submit(replace(plan, objects=objects), detach=True)
        tell(f"run {plan.run} measures {nodes} nodes; it is removed at the end")
        status = _followed(backend, plan.run, plan.namespace)
        return _results(backend, status)


def measuring_run(loaded: Loaded, nodes: int) -> Loaded:
    """Returns the run that measures: so many workers, each on a node of its own."""
    given = loaded.cluster.model_dump(mode="json", exclude_unset=True, warnings=False)
    spec = given["spec"]
    name = f"nodes-{uuid.uuid4().hex[:8]}"
    worker = copy.deepcopy(spec.get("worker") or spec.get("chief") or {})
    for field in _NOT_FOR_WORKERS:
        worker.pop(field, None)
    affinity = worker.get("affinity") or (spec.get("template") or {}).get("affinity") or {}
    worker["affinity"] = _alone(affinity, name)
    kept = {field: copy.deepcopy(spec[field]) for field in _KEPT if field in spec}
    for field in ("command", "args"):
        kept.get("template", {}).pop(field, None)
    directory = str(spec.get("modelDir") or "")
    if "://" in directory:
        kept["modelDir"] = directory
    storage = kept.pop("storage", None) or {}
    if of_bucket := {field: storage[field] for field in _OF_BUCKETS if field in storage}:
        kept["storage"] = of_bucket
    scheduler = (spec.get("scheduling") or {}).get("schedulerName")
    document = {
        "apiVersion": given["apiVersion"],
        "kind": given["kind"],
        "metadata": {**given.get("metadata", {}), "name": name},
        "spec": {
            **kept,
            "strategy": "MultiWorkerMirrored",
            "program": {"entrypoint": "worker.precheck:nothing"},  # which is not reached
            "worker": {**worker, "replicas": nodes},
            "precheck": True,
            "runPolicy": {"backoffLimit": 0, "restartsInPlace": 0},
            **({"scheduling": {"schedulerName": scheduler}} if scheduler else {}),
        },
    }
    checked = loader.check(document, directory=loaded.directory, source=loaded.source)
    return replace(checked, allow_outside=loaded.allow_outside)


def _alone(affinity: dict[str, Any], run: str) -> dict[str, Any]:
    """Returns the affinity of pods of which each has a node of its own."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {RUN_LABEL: run}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    between = affinity.get("podAntiAffinity") or {}
    return {**affinity, "podAntiAffinity": {**between, required: [*between.get(required, ()), term]}}


@contextlib.contextmanager
def _removed(backend: Backend, run: str, namespace: str) -> Iterator[None]:
    """Removes the run at the end of the block, also after Ctrl-C."""
    try:
        yield
    finally:
        with contextlib.suppress(NotFoundError):
            backend.delete(run, namespace)


def _followed(backend: Backend, run: str, namespace: str) -> RunStatus:
    """Returns the last status: all pods that have a node have ended, and no more get one."""
    began = time.monotonic()
    for update in backend.follow(run, namespace):
        status = update.status
        waited = time.monotonic() - began
        started = [task for task in status.tasks if task.node]
        over = all(task.phase in (Phase.SUCCEEDED, Phase.FAILED) for task in started)
        no_more = len(started) == status.primary.desired or waited > _ROOM_SECONDS
        if status.ended or (over and no_more) or waited > _PULL_SECONDS:
            return status
    raise BackendError(f"run {run} ended before it had measured anything")


def _results(backend: Backend, status: RunStatus) -> list[Measured]:
    records: dict[str, dict[str, Any]] = {}
    for line in backend.logs(status.run, status.namespace, EVERYONE, follow=False):
        if line.record is not None:
            records.setdefault(line.record.task, {})[line.record.event] = line.record
    status = replace(status, records=records)
    contents = precheck_outliers.measured(status)
    if not contents:
        reasons = [*(_reason(task, status) for task in status.tasks), status.primary.message]
        raise BackendError(
            f"no node could be measured: {next(filter(None, reasons), 'no pod has started')}",
            "The pods are like the workers of the file: try its image and resources by `submit`.",
        )
    far_off = {each.task: each.text for each in precheck_outliers.of_run(status)}
    bandwidths, latencies = precheck_outliers.best_links(status)
    return [
        Measured(
            task.node,
            contents.get(task.name),
            far_off.get(task.name, ""),
            "" if task.name in contents else _reason(task, status),
            bandwidths.get(task.name),
            latencies.get(task.name),
        )
        for task in sorted(status.tasks, key=lambda task: (not task.node, task.node))
    ]


def _reason(task: TaskStatus, status: RunStatus) -> str:
    """Returns why a task has measured nothing."""
    failure = status.failure_record(task)
    if failure is not None:
        return failure.message
    return task.message or (status.primary.message if not task.node else "it has measured nothing")


def rows(measured: Sequence[Measured]) -> list[list[str]]:
    """Returns a table of those that have measured: a row of headings, then one for each node."""
    contents = [(each, each.content) for each in measured if each.content is not None]
    places = list(dict.fromkeys(place for _, content in contents for place in content.storage))
    table = [["NODE", "GFLOP/s", *map(str.upper, places), "NETWORK", "LATENCY"]]
    for each, content in contents:
        table.append(
            [
                each.node,
                precheck_outliers.number(min(content.compute.values(), default=0.0)),
                *(_cell(content.storage.get(place), "MB/s") for place in places),
                _cell(each.bandwidth, "MB/s"),
                _cell(each.latency, "ms"),
            ]
        )
    return table


def _cell(value: float | None, unit: str) -> str:
    return "" if value is None else f"{precheck_outliers.number(value)} {unit}"
