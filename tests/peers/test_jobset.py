"""Runs that are one JobSet, with its real controller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.plain_requests import PATHS, wait_for
from tests.kind import endless
from tests.kind.endless import RUN
from tests.kind.runs import SECONDS, Runs
from tests.peers.found import JOBSETS
from worker.contract.records import Event

SPEC: dict[str, Any] = {"strategy": "MultiWorkerMirrored", "modelDir": "/model", "worker": {"replicas": 1}}


@pytest.fixture
def jobsets(needs: Callable[[str], None], runs: Runs) -> Iterator[str]:
    """The path of the namespace's JobSets."""
    needs("JobSet")
    path = JOBSETS.format(runs.namespace)
    yield path
    # Otherwise the controller would make again the Jobs that go with the namespace.
    runs.api.request("DELETE", path, propagationPolicy="Background")


def apply(runs: Runs, jobsets: str, file: Path) -> None:
    """Does with the run what the how-to does: `render --as jobset | kubectl apply --server-side`."""
    done = runs.launcher("render", str(file), "--as", "jobset", *runs.settings())
    assert done.returncode == 0, done.stderr
    for item in yaml.safe_load_all(done.stdout):
        kind, name = item["kind"], item["metadata"]["name"]
        path = jobsets if kind == "JobSet" else PATHS[kind].format(runs.namespace)
        query = {"fieldManager": "tests", "fieldValidation": "Strict"}
        answer = runs.api.patch(f"{path}/{name}", item, "application/apply-patch+yaml", **query)
        assert (answer.status, answer.warnings) == (201, ""), answer.body


def restarts(runs: Runs, jobsets: str) -> int:
    """Returns how often the controller has started all Jobs again."""
    (jobset,) = runs.api.request("GET", jobsets).body["items"]
    return int(jobset.get("status", {}).get("restarts", 0))


def test_all_tasks_start_again_when_one_fails(runs: Runs, jobsets: str, tmp_path: Path) -> None:
    policy = {"restartsInPlace": 0, "backoffLimit": 1}
    apply(runs, jobsets, endless.write(tmp_path, dies=True, **SPEC, runPolicy=policy))
    assert wait_for(lambda: restarts(runs, jobsets) == 1, SECONDS), runs.of("describe", run=RUN).stdout
    endless.trains_on(runs)
    assert int(runs.records("chief", event=Event.TRAINING, run=RUN)[0].fields["initial_epoch"]) >= 1
    assert {role["restarts"] for role in endless.status(runs)["roles"]} == {1}
    endless.finish(runs)
    (jobset,) = runs.api.request("GET", jobsets).body["items"]
    assert jobset["status"]["restarts"] == 1
    assert [each["type"] for each in jobset["status"]["conditions"] if each["status"] == "True"] == [
        "Completed"
    ]


def test_an_error_of_the_program_fails_it_at_once(runs: Runs, jobsets: str, tmp_path: Path) -> None:
    file = endless.write(tmp_path, fails=True, **SPEC)
    apply(runs, jobsets, file)
    done = runs.of("wait", run=RUN)
    assert done.returncode == 1, done.stdout + done.stderr
    status = json.loads(runs.of("status", "-o", "json", run=RUN).stdout)["status"]
    assert (status["phase"], status["ended"]) == ("Failed", True)
    assert restarts(runs, jobsets) == 0
    assert runs.of("delete", run=RUN).returncode == 0
    assert runs.api.request("GET", jobsets).body["items"] == []
