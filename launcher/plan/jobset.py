"""What differs where the roles are the replicatedJobs of one JobSet. Pure.

Its controller names Jobs and pods with one more index, and when a Job fails it can start all of them again or
fail the whole, nothing else. Source: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
"""

from __future__ import annotations

from typing import Any, Final

from launcher import object_names
from launcher.config.spec import RoleName
from launcher.plan import roles
from launcher.plan.roles import ResolvedRole
from launcher.plan.topology import Topology
from worker.contract.strategies import Loss, loss

_SUFFIX: Final = "-abcde"
"""Length of the suffix that the Job controller adds to a pod's hostname; the JobSet's webhook counts it."""

_FOR_EVER: Final = 2**31 - 1


def name_too_long(topology: Topology) -> str:
    """Why the JobSet's webhook would refuse the run's name, "" if it would not."""
    longest = max((task.pod_name + _SUFFIX for task in topology.tasks), key=len)
    over = len(longest) - object_names.LABEL_LENGTH
    if over <= 0:
        return ""
    return (
        f"in a JobSet the pod {longest} would have a name of {len(longest)} characters, and it has at most "
        f"{object_names.LABEL_LENGTH}: shorten the run's name by {over}"
    )


def survives(topology: Topology, role: RoleName) -> bool:
    """Whether the other tasks go on without a task of the role, or wait. Then its Job tries it again."""
    return loss(topology.cluster.spec.strategy, role) is not Loss.RESTART


def retries(topology: Topology, role: ResolvedRole) -> dict[str, Any]:
    """The fields of the role's Job that say how often a task of ours is tried again by itself.

    A role that the others need has no tries: its Job fails, and all Jobs are started again.
    """
    limit = _limit(topology)
    if loss(topology.cluster.spec.strategy, role.name) is Loss.NOTHING:
        # The training goes on without this role, but a failed Job would end the JobSet or start it again.
        return {"backoffLimit": _FOR_EVER}
    if not survives(topology, role.name):
        return {"backoffLimit": 0}
    if role.replicas == 1:
        return {"backoffLimit": limit}
    # Without it, the Job would fail when the workers leave at the run's end, if one was lost before.
    return {"backoffLimitPerIndex": limit, "successPolicy": {"rules": [{"succeededCount": 1}]}}


def _limit(topology: Topology) -> int:
    limit = topology.cluster.spec.run_policy.backoff_limit
    return _FOR_EVER if limit is None else limit


def policies(topology: Topology) -> dict[str, Any]:
    """The JobSet's own fields: the primary decides on success, the run's policy on what is tried again."""
    policy = topology.cluster.spec.run_policy
    rules = [
        {
            "name": "programErrorOrDeadline",
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
        }
    ]
    if any(role.name == "worker" and survives(topology, role.name) for role in topology.roles):
        rules.append({"name": "noWorkerIsLeft", "action": "FailJobSet", "targetReplicatedJobs": ["worker"]})
    fields: dict[str, Any] = {
        # Kueue's webhook would set it. If that does not answer, no pod may start without admission.
        "suspend": policy.suspend or roles.gang(topology.cluster.spec) == "Kueue",
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": topology.run,
        },
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [topology.primary]},
        # Waits until all old Jobs are deleted, so that a new chief does not connect to an old server.
        "failurePolicy": {
            # Tasks of other images are tried again one by one, as those of a TFJob.
            "maxRestarts": 0 if roles.is_custom(topology.cluster.spec) else _limit(topology),
            "restartStrategy": "BlockingRecreate",
            "rules": rules,
        },
    }
    if policy.ttl_seconds_after_finished is not None:
        fields["ttlSecondsAfterFinished"] = policy.ttl_seconds_after_finished
    return fields
