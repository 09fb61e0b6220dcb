"""The fields of a TFJob are those of its CRD; those of a pod template are Kubernetes' own."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from launcher.tfjob import fields

CRDS = Path(os.environ.get("LAUNCHER_TEST_CRDS", Path(__file__).parents[3] / "shared" / "crds"))


def models(root: str) -> dict[str, dict[str, str]]:
    """Every type that the root is made of, as the client has it."""
    found: dict[str, dict[str, str]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found:
            model = getattr(client, name)
            found[name] = {model.attribute_map[field]: kind for field, kind in model.openapi_types.items()}
            waiting += re.findall(r"\w*V\d\w+", " ".join(found[name].values()))
    return dict(sorted(found.items()))


def test_the_pods_fields_are_the_clients(renew: bool) -> None:
    expected = models("V1PodTemplateSpec")
    if renew:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kind)}" for name, kind in expected.items())
        fields.POD_FIELDS.write_text(f"{{\n{lines}\n}}\n")
    assert json.loads(fields.POD_FIELDS.read_text()) == expected


def of_crd(schema: dict[str, Any], kind: str) -> None:
    """Compares the fields of one of our types with the CRD's, and so on below."""
    assert fields.TFJOB[kind].keys() == schema["properties"].keys(), kind
    names = {"string": "str", "integer": "int", "boolean": "bool"}
    for name, ours in fields.TFJOB[kind].items():
        theirs = schema["properties"][name]
        if ours in fields.TFJOB:
            of_crd(theirs, ours)
        elif ours == "Dict[str, ReplicaSpec]":
            of_crd(theirs["additionalProperties"], "ReplicaSpec")
        elif theirs["type"] in names:
            assert ours == names[theirs["type"]], f"{kind}.{name}"


def test_the_other_fields_are_the_crds() -> None:
    path = CRDS / "kubeflow.org_tfjobs.yaml"
    if not path.exists():
        pytest.skip(f"there is no {path}; LAUNCHER_TEST_CRDS names the folder with the CRDs")
    (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    assert version["name"] == "v1"
    of_crd(version["schema"]["openAPIV3Schema"], "TFJob")
