"""An elastic run's file, Jobs and environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.cli import parser
from launcher.config.spec import TrainingCluster
from launcher.errors import SpecError
from launcher.object_names import ROLE_LABEL
from launcher.plan import gang_scheduling, rendering, topology
from launcher.validation import loader, rules
from tests.unit import files
from worker.contract.environment import Env
from worker.contract.run_config import ElasticWorkers, elastic_workers

Object = dict[str, Any]

RUNS: dict[str, Object] = {
    "ParameterServer": {"ps": {}},
    "MultiWorkerMirrored": {"chief": {}},
}


def cluster(strategy: str, worker: Object, **spec: Any) -> TrainingCluster:
    return files.cluster(strategy, **{"worker": worker, **RUNS.get(strategy, {}), **spec})


def jobs(training_cluster: TrainingCluster) -> dict[str, Object]:
    objects = rendering.render(topology.build(training_cluster))
    return {item["metadata"]["labels"][ROLE_LABEL]: item for item in objects if item["kind"] == "Job"}


def environment(job: Object) -> dict[str, str]:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


@pytest.mark.parametrize("strategy", RUNS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_workers_job_lets_single_workers_fail(strategy: str, replicas: int) -> None:
    jobs_by_role = jobs(cluster(strategy, {"replicas": replicas, "minReplicas": 1, "maxReplicas": 5}))
    job = jobs_by_role["worker"]["spec"]
    assert (job["completions"], job["parallelism"]) == (replicas, replicas)
    assert job["backoffLimitPerIndex"] == 3
    assert "maxFailedIndexes" not in job
    assert "backoffLimit" not in job
    actions = [rule["action"] for rule in job["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "Ignore", "FailIndex"]


@pytest.mark.parametrize("strategy", RUNS)
def test_every_task_is_told_how_many_workers_there_may_be(strategy: str) -> None:
    worker = {"replicas": 3, "minReplicas": 2, "maxReplicas": 5}
    for job in jobs(cluster(strategy, worker, evaluator={})).values():
        assert elastic_workers(environment(job)) == ElasticWorkers(2, 5, 3)
    for job in jobs(cluster(strategy, {"replicas": 3})).values():
        assert Env.ELASTIC_WORKERS not in environment(job)
        assert elastic_workers(environment(job)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "{}",
        '{"min":2,"max":5}',
        '{"min":0,"max":5,"replicas":3}',
        '{"min":4,"max":5,"replicas":3}',
        '{"min":2,"max":2,"replicas":3}',
        '{"min":"2","max":5,"replicas":3}',
        '{"min":true,"max":5,"replicas":3}',
    ],
)
def test_another_text_of_the_variable_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="elastic workers"):
        elastic_workers({Env.ELASTIC_WORKERS: text})


def test_a_later_version_may_say_more() -> None:
    text = '{"min":2,"max":5,"replicas":3,"later":1}'
    assert elastic_workers({Env.ELASTIC_WORKERS: text}) == ElasticWorkers(2, 5, 3)


def refusals(training_cluster: TrainingCluster) -> dict[str, str]:
    return {".".join(map(str, path)): message for path, message in rules.broken(training_cluster)}


ELASTIC: Object = {"replicas": 3, "minReplicas": 2, "maxReplicas": 5}
MULTI = "MultiWorkerMirrored"


@pytest.mark.parametrize("strategy", RUNS)
def test_what_may_be(strategy: str) -> None:
    assert refusals(cluster(strategy, ELASTIC)) == {}
    assert refusals(cluster(strategy, {"replicas": 3, "minReplicas": 3})) == {}
    assert refusals(cluster(strategy, ELASTIC, modelDir=None)) == {}
    assert refusals(cluster(strategy, ELASTIC, scheduling={"gang": "Volcano"})) == {}


@pytest.mark.parametrize(
    ("strategy", "worker", "spec", "field", "expected"),
    [
        (MULTI, {"minReplicas": 4}, {}, "worker.minReplicas", "expected at most replicas, 3"),
        (MULTI, {"maxReplicas": 2}, {}, "worker.maxReplicas", "expected at least replicas, 3"),
        (MULTI, {"minReplicas": None}, {}, "worker.maxReplicas", "fixed without minReplicas"),
        (MULTI, {}, {"chief": None}, "chief", "give chief: {}, and one worker less"),
        (MULTI, {}, {"chief": {"replicas": 0}}, "chief", "none of them is sure to stay"),
        (
            MULTI,
            {},
            {"modelDir": None, "runPolicy": {"restartsInPlace": 0}},
            "modelDir",
            "since with runPolicy.restartsInPlace: 0 no copy in memory outlives a loss",
        ),
        (MULTI, {}, {"strategyOptions": {"autoShard": "FILE"}}, "strategyOptions.autoShard", "use DATA"),
        (MULTI, {}, {"strategyOptions": {"autoShard": "OFF"}}, "strategyOptions.autoShard", "use DATA"),
        (
            MULTI,
            {},
            {"program": {"entrypoint": "mnist:Mnist", "parameters": {"batchSizePerReplica": 8}}},
            "program.parameters.batchSizePerReplica",
            "give globalBatchSize",
        ),
        (
            MULTI,
            {},
            {"program": {"entrypoint": "mnist:Mnist", "parameters": {"globalBatchSize": 5}}},
            "program.parameters.globalBatchSize",
            "expected at least 6: an example for the chief and each worker",
        ),
        (MULTI, {}, {"mode": "Evaluate"}, "worker.minReplicas", "only a training"),
        (
            MULTI,
            {"minReplicas": 3},
            {"scheduling": {"queue": "team-a"}},
            "worker.minReplicas",
            "expected less than replicas, 3: Kueue admits so many together",
        ),
        (
            "ParameterServer",
            {},
            {"sparseClusterSpec": False},
            "sparseClusterSpec",
            "cannot all know each other",
        ),
        (
            "ParameterServer",
            {"args": ["--", "a.py"]},
            {},
            "worker.minReplicas",
            "a script keeps to the workers",
        ),
        ("ParameterServer", {}, {"chief": {"command": ["a"]}}, "worker.minReplicas", "a script keeps to the"),
        ("Custom", {}, {"program": None, "command": ["a"]}, "worker.minReplicas", "the image's own command"),
        ("Mirrored", {"replicas": 1, "minReplicas": 1}, {}, "worker.minReplicas", "trains in one process"),
    ],
)
def test_what_cannot_be(strategy: str, worker: Object, spec: Object, field: str, expected: str) -> None:
    messages_by_field = refusals(cluster(strategy, {**ELASTIC, **worker}, **spec))
    assert list(messages_by_field) == [f"spec.{field}"]
    assert expected in messages_by_field[f"spec.{field}"]


def test_the_longest_name_is_that_of_the_last_worker_there_may_be() -> None:
    worker = {"replicas": 10, "minReplicas": 10, "maxReplicas": 11}
    training_cluster = cluster("ParameterServer", worker)
    name = "m" * (63 - len("-worker-10"))
    named = training_cluster.model_copy(
        update={"metadata": training_cluster.metadata.model_copy(update={"name": name})}
    )
    assert refusals(named) == {}
    longer = training_cluster.model_copy(
        update={"metadata": training_cluster.metadata.model_copy(update={"name": f"{name}m"})}
    )
    assert "shorten the run's name by 1" in refusals(longer)["metadata.name"]


@pytest.mark.parametrize("strategy", RUNS)
def test_a_gang_needs_no_more_workers_than_the_run(strategy: str) -> None:
    planned = topology.build(cluster(strategy, ELASTIC, evaluator={}, scheduling={"gang": "Volcano"}))
    group = gang_scheduling.pod_group(planned)
    assert group is not None
    others = 2 if strategy == "ParameterServer" else 1
    spec = group["spec"]
    assert isinstance(spec, dict)
    assert (spec["minMember"], spec["minTaskMember"]["worker"]) == (others + 2, 2)


def test_a_jobset_keeps_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps(cluster("ParameterServer", ELASTIC).model_dump(exclude_defaults=True)))
    (loaded,) = loader.load(str(path))
    with pytest.raises(SpecError) as caught:
        plan_of_file.plan(loaded, as_jobset=True)
    (problem,) = caught.value.problems
    assert problem.path == "spec.worker.minReplicas"
    assert "a JobSet's Jobs keep their numbers of tasks" in problem.message


def test_validate_says_how_many_there_may_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps(cluster("ParameterServer", ELASTIC).model_dump(exclude_defaults=True)))
    assert parser.main(["validate", str(path)]) == 0
    assert "ParameterServer with 1 chief, 3 worker (2 to 5), 1 ps" in capsys.readouterr().out
