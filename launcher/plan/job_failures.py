"""What becomes of a task that fails: how often its Job tries again, which failures count, or end the run."""

from __future__ import annotations

from typing import Any, Final

from launcher import object_names
from launcher.plan import gang_scheduling, jobset, roles
from launcher.plan.roles import ResolvedRole
from launcher.plan.topology import Topology
from worker.contract.exit_codes import ExitCode
from worker.contract.strategies import Loss, loss
from worker.contract.task_names import EXTRA_WORKER

UNLIMITED: Final = 2**31 - 1
"""Retries if there is no limit: the largest number that a Job accepts."""

Object = dict[str, Any]


def _survives_a_task(topology: Topology, role: ResolvedRole) -> bool:
    """Whether the run goes on when a task of the role has failed for good."""
    if role.elastic is not None or role.name == EXTRA_WORKER:
        return True
    return loss(topology.cluster.spec.strategy, role.name) is Loss.SPARED


def retries(topology: Topology, role: ResolvedRole) -> dict[str, Any]:
    """Each task has its own tries. Tasks of other images share theirs, as those of a TFJob.

    A Job that counts by task also counts the pods that were deleted or drained, on the pod after them; a role
    of one task gains that by it, too.
    """
    if topology.jobset and not roles.is_custom(topology.cluster.spec):
        return jobset.retries(topology, role)
    limit = topology.cluster.spec.run_policy.backoff_limit
    limit = UNLIMITED if limit is None else limit
    if roles.is_custom(topology.cluster.spec):
        if goes_on_without(topology, role):
            return {"backoffLimitPerIndex": 0}
        return {"backoffLimit": 0 if role.given.restart_policy == "Never" else limit}
    if _survives_a_task(topology, role):
        return {"backoffLimitPerIndex": limit}
    return {"backoffLimitPerIndex": limit, "maxFailedIndexes": 0}


def goes_on_without(topology: Topology, role: ResolvedRole) -> bool:
    """Whether a run of other images goes on when a task of the role has failed for good. That holds for
    workers that do not know each other (a sparse TF_CONFIG) and are not tried again.
    """
    return role.name == "worker" and not topology.sees_all(role.name) and role.given.restart_policy == "Never"


def rules(topology: Topology, role: ResolvedRole) -> list[Object]:
    """What each way of failing counts for: a Job's podFailurePolicy."""
    taken_away = [{"type": "DisruptionTarget", "status": "True"}, *gang_scheduling.disruptions(topology)]
    disruption = {"action": "Ignore", "onPodConditions": taken_away}
    if role.given.restart_policy == "ExitCode":
        permanent = {
            "containerName": object_names.CONTAINER,
            "operator": "In",
            "values": list(range(1, 128)),
        }
        return [disruption, {"action": "FailJob", "onExitCodes": permanent}]
    if not role.uses_runtime:
        return [disruption]
    if topology.jobset and loss(topology.cluster.spec.strategy, role.name) is Loss.NOTHING:
        return [disruption]
    action = "FailIndex" if _survives_a_task(topology, role) else "FailJob"
    return [
        disruption,
        # The task, or one of its peers, was told to leave. That uses up no try.
        {"action": "Ignore", "onExitCodes": _exits_with(ExitCode.PREEMPTED)},
        {"action": action, "onExitCodes": _exits_with(ExitCode.PROGRAM_ERROR)},
    ]


def _exits_with(code: ExitCode) -> Object:
    return {"containerName": object_names.CONTAINER, "operator": "In", "values": [int(code)]}
