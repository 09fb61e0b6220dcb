"""What `render --as jobset` prints, against the JobSet definition and the API server's rules for Jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import plan_of_file
from launcher.validation import loader
from tests.api.conftest import installed, restricted_namespace
from tests.api.plain_requests import PATHS, Api
from tests.api.plan.test_rendering import FILES, differences
from tests.paths import ROOT

CRD = "jobset.x-k8s.io_jobsets"
JOBSETS = "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"


@pytest.fixture(scope="module")
def known(api: Api) -> Iterator[None]:
    with installed(api, CRD):
        yield


@pytest.fixture(scope="module")
def shared(api: Api) -> Iterator[str]:
    with restricted_namespace(api) as name:
        yield name


def as_jobset(path: Path) -> list[Any]:
    return [
        item
        for loaded in loader.load(str(path))
        for item in plan_of_file.plan(loaded, as_jobset=True).objects
    ]


@pytest.mark.by_day(
    "valid/custom-any-image", "valid/gang-of-coscheduling", "sweep/cluster", "valid/every-field"
)
@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_is_accepted_unchanged(api: Api, path: Path, shared: str) -> None:
    """The definition has the fields of Jobs, but none of the checks that the API server makes of a Job."""
    for item in as_jobset(path):
        if item["kind"] != "JobSet":
            assert item["kind"] in PATHS or item["kind"] in ("PodGroup", "PodMonitor")
            continue
        item["metadata"]["namespace"] = shared
        answer = api.request("POST", JOBSETS.format(shared), item, fieldValidation="Strict", dryRun="All")
        assert (answer.status, answer.warnings) == (201, ""), answer.body["message"]
        assert list(differences(item, answer.body)) == []
        for inside in item["spec"]["replicatedJobs"]:
            metadata = {
                **inside["template"]["metadata"],
                "name": f"{item['metadata']['name']}-{inside['name']}-0",
            }
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": metadata,
                "spec": inside["template"]["spec"],
            }
            answer = api.create(job, shared, dryRun="All")
            assert (answer.status, answer.warnings) == (201, ""), answer.body["message"]


@pytest.mark.usefixtures("known")
def test_the_server_would_have_refused_an_unknown_field(api: Api, shared: str) -> None:
    (item,) = (each for each in as_jobset(FILES[0]) if each["kind"] == "JobSet")
    item["metadata"]["namespace"] = shared
    item["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["hostName"] = "x"
    answer = api.request("POST", JOBSETS.format(shared), item, fieldValidation="Strict", dryRun="All")
    assert answer.status == 400
    assert "hostName" in answer.body["message"]


@pytest.mark.usefixtures("known")
def test_the_command_line_prints_it(api: Api, namespace: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "launcher", "render", str(FILES[0]), "--as", "jobset", "-n", namespace],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    last = list(yaml.safe_load_all(printed.stdout))[-1]
    last["metadata"]["namespace"] = namespace
    made = api.request("POST", JOBSETS.format(namespace), last, fieldValidation="Strict")
    assert made.status == 201, made.body
