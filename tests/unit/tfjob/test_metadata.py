"""A real TFJob: its name, the places of its policies, and the fields that a server has added."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher
from launcher.cli import parser
from launcher.errors import SpecError
from launcher.tfjob import metadata
from launcher.validation import loader
from tests.paths import SPECS

Object = dict[str, Any]

# As in Kubernetes: no vowels, and no characters that look alike.
SUFFIX = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")


def tfjob(given: Object, **spec: Any) -> Object:
    container = {"name": "tensorflow", "image": "example.com/a:1"}
    replicas = {"Worker": {"template": {"spec": {"containers": [container]}}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": given,
        "spec": {"tfReplicaSpecs": replicas, **spec},
    }


def written(document: Object, directory: Path) -> str:
    path = directory / "tfjob.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def converted(document: Object) -> tuple[Object, list[str]]:
    conversion = loader.check(document).conversion
    assert conversion is not None
    return conversion.value, conversion.notes


# ---- the name


def test_generate_name_makes_a_name_as_an_api_server_does() -> None:
    names = {metadata.generated("tfjob-") for _ in range(50)}
    assert len(names) > 40
    assert all(name.startswith("tfjob-") and SUFFIX.fullmatch(name[6:]) for name in names)
    assert {len(metadata.generated("a" * length)) for length in (58, 59, 63, 300)} == {63}


def test_a_name_goes_before_generate_name() -> None:
    value, notes = converted(tfjob({"generateName": "other-", "name": "job"}))
    assert value["metadata"] == {"name": "job"}
    assert notes == ["Left out, as an API server's, a controller's or kubectl's own: metadata.generateName."]


def test_every_part_of_the_run_has_the_generated_name(tmp_path: Path) -> None:
    (loaded,) = loader.load(written(tfjob({"generateName": "tfjob"}), tmp_path))
    name = loaded.cluster.metadata.name
    assert name.startswith("tfjob")
    assert SUFFIX.fullmatch(name.removeprefix("tfjob"))
    worker = loaded.cluster.spec.worker
    assert worker is not None
    labels = worker.pod_template["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-name"] == name
    # What was loaded does not change.
    assert {item["metadata"]["namespace"] for item in launcher.render(loaded)} == {"default"}
    assert launcher.render(loaded)[0]["metadata"]["name"] == f"{name}-worker"


def test_the_generated_name_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tfjob({"generateName": "tfjob-"}), tmp_path)
    assert parser.main(["render", path]) == 0
    captured = capsys.readouterr()
    name = yaml.safe_load(captured.out.split("---")[1])["metadata"]["name"].removesuffix("-worker")
    explanation = "made of generateName as an API server does: another name each time."
    assert f"{path}: note: The run is called {name}, {explanation}\n" in captured.err
    assert parser.main(["convert", path]) == 0
    captured = capsys.readouterr()
    assert re.search(rf"# The run is called (tfjob-\w+), {explanation}\n  name: \1\n", captured.out)
    assert captured.err == ""


def test_a_name_that_is_no_name_is_said_at_generate_name(tmp_path: Path) -> None:
    path = written(tfjob({"generateName": "a" * 58}), tmp_path)
    with pytest.raises(SpecError) as caught:
        loader.load(path)
    (problem,) = caught.value.problems
    assert problem.path == "metadata.generateName"
    assert "shorten the run's name by 9" in problem.message
    with pytest.raises(SpecError, match=r"metadata.name: missing"):
        loader.load(written(tfjob({"generateName": ""}), tmp_path))


def test_whoever_owns_a_run_needs_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise a restarted launcher would start a second run beside the first."""
    path = written(tfjob({"generateName": "tfjob-"}), tmp_path)
    arguments = ["submit", path, "--owned-by", "Job/launcher", "--dry-run", "client"]
    assert parser.main(arguments) == 2
    assert "metadata.generateName: expected a metadata.name: with --owned-by" in capsys.readouterr().err


# ---- policies beside tfReplicaSpecs


def test_policies_beside_the_replicas_are_taken() -> None:
    value, notes = converted(
        tfjob(
            {"name": "job"},
            cleanPodPolicy="Running",
            backoffLimit=2,
            ttlSecondsAfterFinished=60,
            activeDeadlineSeconds=3600,
        )
    )
    assert value["spec"]["runPolicy"] == {
        "backoffLimit": 2,
        "activeDeadlineSeconds": 3600,
        "ttlSecondsAfterFinished": 60,
        "cleanPolicy": "Running",
    }
    (note,) = notes
    named = "activeDeadlineSeconds, backoffLimit, cleanPodPolicy, ttlSecondsAfterFinished"
    assert note.startswith(f"Beside tfReplicaSpecs, where the first operators had it: {named}. ")


def test_run_policy_goes_before_them() -> None:
    policy = {"cleanPodPolicy": "All", "backoffLimit": None}
    document = tfjob({"name": "job"}, cleanPodPolicy="Running", backoffLimit=0, runPolicy=policy)
    value, notes = converted(document)
    assert value["spec"]["runPolicy"]["cleanPolicy"] == "All"
    assert value["spec"]["runPolicy"]["backoffLimit"] == 0
    assert notes[1] == "Passed over, because runPolicy says otherwise: spec.cleanPodPolicy."


def test_the_same_twice_is_no_news() -> None:
    document = tfjob({"name": "job"}, cleanPodPolicy="All", runPolicy={"cleanPodPolicy": "All"})
    assert converted(document)[1] == []


def test_v1beta2_is_read_as_v1() -> None:
    document = tfjob({"name": "job"}, backoffLimit=3) | {"apiVersion": "kubeflow.org/v1beta2"}
    value, notes = converted(document)
    assert value["spec"]["runPolicy"]["backoffLimit"] == 3
    assert value["spec"]["runPolicy"]["cleanPolicy"] == "None"
    (note,) = notes
    assert note.startswith("v1beta2 is read as v1. What changed:")


# ---- what a server adds


def test_what_a_server_adds_is_left_out_and_named() -> None:
    (loaded,) = loader.load(str(SPECS / "valid" / "tfjob-as-kubectl-prints-it.yaml"))
    assert loaded.cluster.metadata.model_dump(exclude_unset=True) == {
        "name": "churn",
        "namespace": "retention",
        "labels": {"team": "retention"},
    }
    assert loaded.conversion is not None
    (note,) = loaded.conversion.notes
    for name in ("uid", "ownerReferences", "managedFields", "resourceVersion", "status", "last-applied"):
        assert name in note


def test_finalizers_are_not_taken() -> None:
    with pytest.raises(SpecError, match=r"metadata.finalizers: not supported: remove it"):
        loader.check(tfjob({"name": "job", "finalizers": ["example.com/hold"]}))
