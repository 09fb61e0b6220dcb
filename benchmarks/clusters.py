"""Writes the cluster.yaml of a benchmark's run, with its program beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")


def write(
    directory: Path,
    name: str,
    strategy: str,
    replicas: Mapping[str, int],
    sources: Sequence[Path],
    spec: Mapping[str, Any],
    roles: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    on_host: bool = True,
) -> Path:
    """Writes `directory`/cluster.yaml and copies `sources` into `directory`/program. `spec` comes on top,
    and `roles` has more fields of some roles.

    The modelDir is `directory`/model with `on_host`, and otherwise a claim that goes with the run.
    """
    role: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    if on_host:
        (directory / "model").mkdir()
        role |= model_volume(directory)
    else:
        storage["storage"] = {"reclaimPolicy": "Delete"}
    program = {"source": "./program", **spec.get("program", {})}
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": name},
        "spec": {
            "strategy": strategy,
            "strategyOptions": {"logicalCpus": 2} if strategy in ("Mirrored", "CentralStorage") else {},
            "modelDir": "/model",
            **storage,
            **spec,
            "program": program,
            **{
                each: {"replicas": count, **role, **(roles or {}).get(each, {})}
                for each, count in replicas.items()
            },
        },
    }
    (directory / "program").mkdir()
    for source in sources:
        shutil.copy(source, directory / "program")
    path = directory / "cluster.yaml"
    path.write_text(json.dumps(document, indent=1))  # JSON is YAML
    return path


def model_volume(directory: Path) -> dict[str, Any]:
    """Returns the fields that mount `directory`/model as /model."""
    return {
        "volumes": [{"name": "model", "hostPath": {"path": str(directory / "model")}}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}],
    }
