"""Our definition of a TFJob, as a real API server takes it: every TFJob that we read is stored whole."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.config import yaml_parser
from launcher.tfjob import conversion, fields
from tests.api.conftest import installed, restricted_namespace
from tests.api.plain_requests import Api
from tests.paths import ROOT, SPECS

DEFINITION = ROOT / "manifests" / "controller" / "crd.yaml"
TFJOBS = [
    *sorted((SPECS / "valid").glob("tfjob-*.yaml")),
    ROOT / "tests" / "releases" / "files" / "tfjob.yaml",
]
PATH = "apis/kubeflow.org/v1/namespaces/{}/tfjobs"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def space(api: Api) -> Iterator[str]:
    """A namespace of a server that has our definition."""
    with installed(api, DEFINITION), restricted_namespace(api) as name:
        yield name


def made(api: Api, space: str, item: Object, **query: str) -> Object:
    metadata = {key: item["metadata"][key] for key in ("name", "labels") if key in item["metadata"]}
    # A v1beta2's fields are those of v1.
    item = {**item, "apiVersion": conversion.VERSION, "metadata": metadata}
    answer = api.request("POST", PATH.format(space), item, fieldValidation="Strict", **query)
    assert (answer.status, answer.warnings) == (201, ""), answer.body
    return answer.body


def tfjob(**spec: Any) -> Object:
    kind = {"apiVersion": conversion.VERSION, "kind": "TFJob"}
    return {**kind, "metadata": {"name": "job"}, "spec": {"tfReplicaSpecs": {"Worker": {}}, **spec}}


@pytest.mark.parametrize("path", TFJOBS, ids=lambda path: path.stem)
def test_every_tfjob_is_stored_whole(api: Api, space: str, path: Path) -> None:
    (document,) = yaml_parser.parse(path.read_text(), str(path))
    stored = made(api, space, document.value, dryRun="All")
    assert stored["spec"] == {"runPolicy": {}, **document.value["spec"]}


def test_the_types_are_those_that_we_read() -> None:
    (version,) = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"]

    def compare(schema: Object, kind: str) -> None:
        names = {*fields.TFJOB[kind], *(fields.OLD_POLICY if kind == "TFJobSpec" else ())}
        assert schema["properties"].keys() == names, kind
        for name, ours in fields.TFJOB[kind].items():
            held = schema["properties"][name]
            if ours in fields.TFJOB:
                compare(held, ours)
            elif ours == "Dict[str, ReplicaSpec]":
                compare(held["additionalProperties"], "ReplicaSpec")
            elif ours in (types := {"str": "string", "int": "integer", "bool": "boolean"}):
                assert held["type"] == types[ours], f"{kind}.{name}"

    compare(version["schema"]["openAPIV3Schema"], "TFJob")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"successPolicy": "Chief"}, 'spec.successPolicy: Unsupported value: "Chief": supported values: '),
        ({"runPolicy": {"cleanPodPolicy": "all"}}, "spec.runPolicy.cleanPodPolicy: Unsupported value"),
        ({"runPolicy": {"suspend": "yes"}}, "spec.runPolicy.suspend: Invalid value"),
        ({"tfReplicaSpecs": {"PS": {"replicas": -1}}}, "spec.tfReplicaSpecs.PS.replicas: Invalid value: -1"),
        ({"tfReplicaSpec": {}}, 'unknown field "spec.tfReplicaSpec"'),
        ({"tfReplicaSpecs": None}, "spec.tfReplicaSpecs: Required value"),
    ],
)
def test_what_no_tfjob_can_be_is_refused_at_once(api: Api, space: str, spec: Object, message: str) -> None:
    answer = api.request("POST", PATH.format(space), tfjob(**spec), fieldValidation="Strict")
    assert answer.status in (400, 422)
    assert message in answer.body["message"]


def test_what_counts_as_left_out_is_taken(api: Api, space: str) -> None:
    policy = {"cleanPodPolicy": "", "backoffLimit": None, "schedulingPolicy": None}
    made(api, space, tfjob(successPolicy="", runPolicy=policy, activeDeadlineSeconds=None), dryRun="All")


def test_the_state_is_a_column_and_only_the_status_is_written_there(api: Api, space: str) -> None:
    job = made(api, space, tfjob())
    path = f"{PATH.format(space)}/job"
    moment = "2026-01-31T12:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": kind, "lastUpdateTime": moment}
        for kind in ("Created", "Running")
    ]
    status = {
        "conditions": conditions,
        "replicaStatuses": {"Worker": {"active": 1, "selector": "training.kubeflow.org/job-name=job"}},
        "startTime": moment,
        "lastReconcileTime": moment,
    }
    changed = copy.deepcopy(job) | {"status": status}
    changed["spec"]["successPolicy"] = "AllWorkers"
    answer = api.request("PUT", f"{path}/status", changed, fieldValidation="Strict")
    assert answer.status == 200, answer.body
    assert answer.body["status"] == status
    assert answer.body["spec"] == job["spec"]
    table = api.request("GET", path, accept="application/json;as=Table;g=meta.k8s.io;v=v1").body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    assert table["rows"][0]["cells"][:2] == ["job", "Running"]
