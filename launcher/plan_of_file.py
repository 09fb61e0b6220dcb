"""Turns a loaded file into the plan that a backend carries out. It changes nothing yet."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any, Final

from launcher.backends.base import Plan
from launcher.backends.checked_names import check_names
from launcher.errors import Problem, SpecError
from launcher.plan import jobset, object_size, rendering, roles, topology
from launcher.plan.program_files import ProgramFiles
from launcher.plan.topology import Topology
from launcher.validation import source
from launcher.validation.loader import Loaded

_MAKE_PODS: Final = ("Job", "JobSet", "Deployment")


def placed(loaded: Loaded, wanted: str | None, default_namespace: str) -> Loaded:
    """Returns the run with its namespace: the file's, else `wanted`, else the backend's own.

    Raises SpecError when the file's namespace differs from `wanted`, or that is no valid name.
    """
    check_names(wanted)
    metadata = loaded.cluster.metadata
    if "namespace" not in metadata.model_fields_set:
        there = metadata.model_copy(update={"namespace": wanted or default_namespace})
        return dataclasses.replace(loaded, cluster=loaded.cluster.model_copy(update={"metadata": there}))
    if wanted not in (None, metadata.namespace):
        message = (
            f"the file says {metadata.namespace}, and --namespace {wanted}: leave one of them out, or "
            f"override the file's with --set metadata.namespace={wanted}"
        )
        raise SpecError([Problem(loaded.source, 0, 0, "metadata.namespace", message)])
    return loaded


def submission(loaded: Loaded, wanted: str | None, default_namespace: str) -> Plan:
    """Returns the plan of a new submission, in its namespace: see `placed`."""
    return plan(placed(loaded, wanted, default_namespace), uuid.uuid4().hex)


def rendered(loaded: Loaded, wanted: str | None, form: str) -> list[dict[str, Any]]:
    """Returns the objects of one run for somebody else to apply; `form` is `jobs` or `jobset`. What pods
    mount or ask for precedes them: a kubelet that misses it waits before it looks again. They have no
    namespace where neither the file nor `wanted` says one: then that of kubectl's context is theirs, which is
    where the commands look for the run.

    Raises SpecError as `placed` and `plan` do.
    """
    decided = wanted is not None or "namespace" in loaded.cluster.metadata.model_fields_set
    made = plan(placed(loaded, wanted, "default"), as_jobset=form == "jobset").objects
    for item in [] if decided else made:
        del item["metadata"]["namespace"]
    return sorted(made, key=lambda item: item["kind"] in _MAKE_PODS)


def plan(loaded: Loaded, run_id: str = "", *, as_jobset: bool = False) -> Plan:
    """Returns the plan of one run. Raises SpecError when the program's source is missing or wrong, or an
    object is too large for an API server.

    `run_id` differs between two submissions of a name; without it, the same file is the same run. With
    `as_jobset`, the roles are the replicatedJobs of one JobSet.
    """
    planned = topology.build(loaded.cluster, jobset=as_jobset)
    if as_jobset:
        _check_name(loaded, planned)
        if planned.elastic is not None:
            message = "a JobSet's Jobs keep their numbers of tasks: remove it, or render plain Jobs"
            raise SpecError([loaded.problem(("spec", "worker", "minReplicas"), message)])
    program = source.read(loaded)
    made = _plan(loaded, planned, program, run_id)
    # A JobSet is one workload of Kueue's, whose number of pods does not change.
    if as_jobset or roles.gang(loaded.cluster.spec) != "Kueue" or planned.elastic is not None:
        return made
    other = dataclasses.replace(planned, jobset=True)
    _check_name(loaded, other)
    return dataclasses.replace(made, as_jobset=_plan(loaded, other, program, run_id))


def _check_name(loaded: Loaded, planned: Topology) -> None:
    if message := jobset.name_too_long(planned):
        raise SpecError([Problem(loaded.source, 0, 0, "metadata.name", message)])


def _plan(loaded: Loaded, planned: Topology, program: ProgramFiles | None, run_id: str) -> Plan:
    """Returns the plan in the form that the topology has."""
    objects = rendering.render(planned, program, run_id)
    if (large := object_size.too_large(objects)) is not None:
        field = "spec" if program is None else "spec.program.source"
        hint = "shorten it" if program is None else "give it fewer files, shorter names, or less in them"
        raise SpecError([Problem(loaded.source, 0, 0, field, f"{large}: {hint}")])
    tasks = [address for role in planned.addresses.values() for address in role]
    return Plan(
        run=planned.run,
        namespace=planned.namespace,
        objects=objects,
        addresses=[*tasks, *planned.metrics_addresses],
    )
