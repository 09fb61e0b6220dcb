"""Queues of Kueue's that tests make and remove."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.api.plain_requests import Api, wait_for
from tests.peers.found import KUEUE, Object, cluster_queue, made

LOCAL: Final = "team"
"""The queue's name in the namespace of the runs."""


class Queues:
    """One ClusterQueue with its flavor, its LocalQueue in a namespace, and a class for runs that go first."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name: Final = f"tf-launcher-{uuid.uuid4().hex[:8]}"

    @property
    def urgent(self) -> dict[str, str]:
        """The labels of a run that goes before others."""
        return {"kueue.x-k8s.io/priority-class": self._name}

    def make(self, cpu: str) -> None:
        """Makes the queue, with this quota. A run that goes first preempts others."""
        version = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
        flavor = {**version, "kind": "ResourceFlavor", "metadata": {"name": self._name}}
        made(self._api, f"{KUEUE}/resourceflavors", flavor)
        preemption = {"withinClusterQueue": "LowerPriority"}
        queue = cluster_queue(self._name, {"cpu": cpu, "memory": "100Gi"}, preemption=preemption)
        made(self._api, f"{KUEUE}/clusterqueues", queue)
        priority = {
            **version,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": self._name},
            "value": 1000,
        }
        made(self._api, f"{KUEUE}/workloadpriorityclasses", priority)
        local = {
            **version,
            "kind": "LocalQueue",
            "metadata": {"name": LOCAL},
            "spec": {"clusterQueue": self._name},
        }
        made(self._api, f"{KUEUE}/namespaces/{self._namespace}/localqueues", local)

    def used(self) -> dict[str, str]:
        """What admitted runs use of the quota, without what is 0."""
        status = self._cluster_queue()["status"]
        (flavor,) = status["flavorsUsage"]
        return {each["name"]: each["total"] for each in flavor["resources"] if each.get("total", "0") != "0"}

    def free(self) -> None:
        """Waits until no run uses any quota."""
        assert wait_for(lambda: not self.used(), 60), self.used()

    def workloads(self) -> list[Object]:
        """Kueue's objects for the runs."""
        items: list[Object] = self._api.request(
            "GET", f"{KUEUE}/namespaces/{self._namespace}/workloads"
        ).body["items"]
        return items

    def remove(self) -> None:
        """Removes all that was made."""
        for path in (
            f"namespaces/{self._namespace}/localqueues/{LOCAL}",
            f"clusterqueues/{self._name}",
            f"resourceflavors/{self._name}",
            f"workloadpriorityclasses/{self._name}",
        ):
            self._api.request("DELETE", f"{KUEUE}/{path}")
        gone = f"{KUEUE}/clusterqueues/{self._name}"
        assert wait_for(lambda: self._api.request("GET", gone).status == 404, 60)

    def _cluster_queue(self) -> dict[str, Any]:
        answer = self._api.request("GET", f"{KUEUE}/clusterqueues/{self._name}")
        assert answer.status == 200, answer.body
        return answer.body
