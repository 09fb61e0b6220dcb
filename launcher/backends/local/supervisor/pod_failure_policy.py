"""What a Job says about its pods' ends: podFailurePolicy and successPolicy.

Source: kubernetes/kubernetes `pkg/controller/job/{pod_failure_policy,success_policy}.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from launcher.index_ranges import parse_indexes

Action = Literal["FailJob", "FailIndex", "Ignore", "Count"]


@dataclass(frozen=True)
class Match:
    """The rule that a failed pod met. `message` is Kubernetes' own wording."""

    action: Action
    message: str


def match_failure(
    policy: Mapping[str, Any] | None, pod_name: str, pod_status: Mapping[str, Any]
) -> Match | None:
    """The first rule of a podFailurePolicy that a failed pod meets. `pod_name` is `namespace/name`."""
    for index, rule in enumerate((policy or {}).get("rules") or ()):
        action: Action = rule["action"]
        if (requirement := rule.get("onExitCodes")) is not None:
            for container in pod_status.get("containerStatuses") or ():
                code = _exit_code(container, requirement)
                if code is not None:
                    message = (
                        f"Container {container['name']} for pod {pod_name} failed with exit code {code} "
                        f"matching {action} rule at index {index}"
                    )
                    return Match(action, message)
        else:
            for condition in pod_status.get("conditions") or ():
                for pattern in rule.get("onPodConditions") or ():
                    if (condition["type"], condition["status"]) == (
                        pattern["type"],
                        pattern.get("status", "True"),
                    ):
                        message = (
                            f"Pod {pod_name} has condition {condition['type']} matching {action} rule "
                            f"at index {index}"
                        )
                        return Match(action, message)
    return None


def _exit_code(container: Mapping[str, Any], requirement: Mapping[str, Any]) -> int | None:
    """The container's exit code when it meets the requirement. 0 never does."""
    name = requirement.get("containerName")
    if name is not None and name != container["name"]:
        return None
    code: int = ((container.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
    listed = code in requirement["values"]
    return code if code != 0 and listed == (requirement["operator"] == "In") else None


def success_rule(policy: Mapping[str, Any] | None, succeeded: Collection[int]) -> int | None:
    """The index of the first rule of a successPolicy that the succeeded indexes meet."""
    for index, rule in enumerate((policy or {}).get("rules") or ()):
        among = rule.get("succeededIndexes")
        wanted = parse_indexes(among) if among is not None else None
        met = len(succeeded) if wanted is None else len(wanted.intersection(succeeded))
        count = rule.get("succeededCount")
        if count is None:
            count = len(wanted or ())
        if met >= count:
            return index
    return None
