"""Room on a node, in numbers that a test decides: an extended resource that the node's status names.

Source: https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/
"""

from __future__ import annotations

import uuid
from typing import Any, Final

import pytest

from tests.api.plain_requests import Api

_MERGE: Final = "application/merge-patch+json"


class Places:
    """A resource of one node. Skips the test where the cluster has no node for it, or does not let us."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._name = f"tf-launcher.dev/place-{uuid.uuid4().hex[:8]}"
        nodes = api.request("GET", "api/v1/nodes").body.get("items") or []
        free = [node["metadata"]["name"] for node in nodes if _schedulable(node)]
        if not free:
            pytest.skip(f"no node takes pods: {len(nodes)} nodes, none of them ready and without a taint")
        self.node: Final = str(free[0])
        self.are(0)

    @property
    def one(self) -> dict[str, Any]:
        """The `resources` of a task that needs a place, and little else."""
        return {"requests": {"cpu": "100m"}, "limits": {"memory": "700Mi", self._name: 1}}

    def are(self, number: int) -> None:
        """There are so many places from now on."""
        self._set(str(number))

    def remove(self) -> None:
        """The node no longer has the resource."""
        self._set(None)

    def _set(self, number: str | None) -> None:
        status = {key: {self._name: number} for key in ("capacity", "allocatable")}
        answer = self._api.patch(f"api/v1/nodes/{self.node}/status", {"status": status}, _MERGE)
        if answer.status == 403:
            pytest.skip(f"may not change what a node has: {answer.body['message']}")
        assert answer.status == 200, answer.body


def _schedulable(node: dict[str, Any]) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    return ready and not node["spec"].get("taints") and not node["spec"].get("unschedulable")
