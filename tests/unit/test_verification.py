"""`verify`: the two runs of every valid file, and what is said of differences."""

from __future__ import annotations

from typing import Any

import pytest

from launcher import plan_of_file
from launcher.backends import run_facts
from launcher.errors import SpecError
from launcher.plan import topology
from launcher.validation import loader
from launcher.verification import verdict
from launcher.verification.two_runs import TwoRuns
from tests.paths import ROOT
from worker.contract.run_config import RunConfig, Verification

VOLUMES: list[dict[str, Any]] = [{"name": "mine", "hostPath": {"path": "/data"}}]
FILES = sorted((ROOT / "tests" / "specs" / "valid").glob("*.yaml"))
LOADED = {path.name: loader.load(path)[0] for path in FILES}
TRAINS = [
    name
    for name, loaded in LOADED.items()
    if loaded.cluster.spec.trains_program
    and loaded.cluster.spec.mode == "Train"
    and loaded.cluster.spec.strategy != "Custom"
]


@pytest.mark.parametrize("name", TRAINS)
def test_a_file_is_two_runs_of_this_machine(name: str) -> None:
    given, runs = LOADED[name], TwoRuns(LOADED[name], 2)
    for each in (runs.one, runs.other):
        config = run_facts.run_config(plan_of_file.plan(each).objects)
        assert config is not None
        assert set(config.gpus) <= set(config.allow_cpu)
        assert config.model_dir
        assert "://" not in config.model_dir
        assert {role.name for role in topology.build(each.cluster).roles} <= {"chief", "worker", "ps"}
        assert config.script == given.cluster.spec.program.script_file  # type: ignore[union-attr]
        assert config.entrypoint == given.cluster.spec.program.entrypoint  # type: ignore[union-attr]
    assert runs.one.cluster.spec.strategy == "OneDevice"
    counts = {role.name: role.replicas for role in topology.build(runs.other.cluster).roles}
    assert counts.get("worker", 0) <= 2
    assert sum(counts.values()) <= 5


@pytest.mark.parametrize("name", sorted(LOADED.keys() - set(TRAINS)))
def test_a_run_that_the_runtime_does_not_train_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="`verify` compares a training"):
        TwoRuns(LOADED[name], 2)


def cluster(**spec: Any) -> TwoRuns:
    """Returns the two runs of MultiWorkerMirrored with four workers, or of what `spec` says."""
    program = {"entrypoint": "module:Program", "parameters": spec.pop("parameters", {})}
    most = spec.pop("most", 2)
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run"},
        "spec": {
            "strategy": "MultiWorkerMirrored",
            "worker": {"replicas": 4},
            "modelDir": "/mine/model",
            "program": program,
            **spec,
        },
    }
    return TwoRuns(loader.check(document), most)


@pytest.mark.parametrize(
    "mounting",
    [
        lambda mounts: {"template": {"volumes": VOLUMES, "volumeMounts": mounts}},
        lambda mounts: {
            "template": {
                "volumes": VOLUMES,
                "podTemplate": {"spec": {"containers": [{"name": "tensorflow", "volumeMounts": mounts}]}},
            }
        },
    ],
)
def test_a_volume_with_the_model_directory_is_read_only(mounting: Any) -> None:
    runs = cluster(**mounting([{"name": "mine", "mountPath": "/mine"}]))
    for each in (runs.one, runs.other):
        assert each.cluster.spec.model_dir == "/tf-launcher-verify"
        job = plan_of_file.plan(each).objects[0]
        mounts = job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        (mine,) = [mount for mount in mounts if mount["mountPath"] == "/mine"]
        assert mine["readOnly"] is True


def test_one_process_has_the_batch_of_all_replicas() -> None:
    runs = cluster(parameters={"batchSizePerReplica": 10}, strategyOptions={"logicalCpus": 3})
    assert runs.one.cluster.spec.program.parameters == {"globalBatchSize": 60}  # type: ignore[union-attr]
    assert runs.other.cluster.spec.program.parameters == {"batchSizePerReplica": 10}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("size", "given", "most", "tried"),
    [(64, 4, 2, 2), (64, 4, 4, 4), (63, 3, 2, 3), (63, 9, 4, 3), (64, 4, 1, 1)],
)
def test_as_many_are_tried_as_can_share_a_batch(size: int, given: int, most: int, tried: int) -> None:
    runs = cluster(parameters={"globalBatchSize": size}, worker={"replicas": given}, most=most)
    assert runs.other.cluster.spec.worker.replicas == tried  # type: ignore[union-attr]
    assert (f"tried here: {tried} of {given} workers" in "\n".join(runs.notes)) == (tried != given)


def test_the_tasks_read_what_is_to_be_noted() -> None:
    plan = plan_of_file.plan(cluster().other)
    wanted = Verification(7, ["random"], perturbed=True)
    config = run_facts.run_config(run_facts.with_config(plan.objects, verification=wanted))
    assert config is not None
    assert config.verification == wanted
    before = run_facts.run_config(plan.objects)
    assert before is not None
    assert before.verification is None
    assert "verification" not in before.to_json()
    assert RunConfig.from_json(config.to_json()) == config


def test_a_number_that_json_lacks_is_none() -> None:
    row = verdict.Difference("a.py:1", "loss", float("nan"), 1.0, float("inf"), same=False)
    document = verdict.Verdict("run", False, [row], [], []).to_dict()
    assert document["compared"][0] == {
        "where": "a.py:1",
        "name": "loss",
        "one": None,
        "strategy": 1.0,
        "difference": None,
        "same": False,
    }
