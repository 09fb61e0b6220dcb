"""The fields of a TFJob are those of its CRD."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.tfjob import fields
from tests.paths import ROOT

CRDS = Path(os.environ.get("LAUNCHER_TEST_CRDS", ROOT.parent / "shared" / "crds"))


def of_crd(schema: dict[str, Any], kind: str) -> None:
    """Compares the fields of one type with the CRD's, and then those of its nested types."""
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
