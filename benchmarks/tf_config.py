"""Bytes of TF_CONFIG that Kubernetes keeps for a run: the launcher's, and the training-operator's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PORT = 2222


def stored(objects: Sequence[Any]) -> int:
    """In all pods of the Jobs among `objects`, as Kubernetes keeps them, and in the ConfigMap's file."""
    total = 0
    for item in objects:
        if item["kind"] == "Job":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            values = [each["value"] for each in container["env"] if each["name"] == "TF_CONFIG"]
            total += sum(len(value) for value in values) * int(item["spec"]["completions"])
        elif item["kind"] == "ConfigMap":
            total += len(item.get("data", {}).get("cluster.json", ""))
    return total


def replicas(objects: Sequence[Any]) -> dict[str, int]:
    """How many tasks each role of the run has."""
    return {
        item["metadata"]["labels"]["tf-launcher.dev/role"]: item["spec"]["completions"]
        for item in objects
        if item["kind"] == "Job"
    }


def tfjob(name: str, namespace: str, tasks: Mapping[str, int]) -> int:
    """In all pods of a TFJob with these replicas: every pod has the list of all.

    genTFConfigJSONStr and genClusterSpec of kubeflow/training-operator 1.9,
    pkg/controller.v1/tensorflow/tensorflow.go.
    """
    cluster = {
        role: [f"{name}-{role}-{index}.{namespace}.svc:{PORT}" for index in range(count)]
        for role, count in tasks.items()
    }
    shared = _bytes({"cluster": cluster, "task": {}, "environment": "cloud"}) - len("{}")
    return sum(
        shared + _bytes({"type": role, "index": index})
        for role, count in tasks.items()
        for index in range(count)
    )


def _bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))
