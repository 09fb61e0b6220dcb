"""An elastic run's file, Jobs and environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.config.spec import TrainingCluster
from launcher.naming import ROLE_LABEL
from launcher.plan import rendering, topology
from launcher.validation import rules
from worker.contract import ElasticWorkers, Env, elastic_workers

Object = dict[str, Any]

RUNS: dict[str, Object] = {
    "ParameterServer": {"ps": {}},
    "MultiWorkerMirrored": {"chief": {}},
}


def cluster(strategy: str, worker: Object, **spec: Any) -> TrainingCluster:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "mnist"},
        "spec": {
            "strategy": strategy,
            "program": {"entrypoint": "mnist:Mnist"},
            "modelDir": "/model",
            "worker": worker,
            **RUNS.get(strategy, {}),
            **spec,
        },
    }
    return TrainingCluster.model_validate_json(json.dumps(document))


def jobs(found: TrainingCluster) -> dict[str, Object]:
    objects = rendering.render(topology.build(found))
    return {item["metadata"]["labels"][ROLE_LABEL]: item for item in objects if item["kind"] == "Job"}


def environment(job: Object) -> dict[str, str]:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


@pytest.mark.parametrize("strategy", RUNS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_workers_job_lets_single_workers_fail(strategy: str, replicas: int) -> None:
    found = jobs(cluster(strategy, {"replicas": replicas, "minReplicas": 1, "maxReplicas": 5}))
    job = found["worker"]["spec"]
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


def refusals(found: TrainingCluster) -> dict[str, str]:
    return {".".join(map(str, path)): message for path, message in rules.broken(found)}


@pytest.mark.parametrize(
    ("worker", "field", "expected"),
    [
        ({"minReplicas": 4}, "minReplicas", "expected at most replicas, 3"),
        ({"minReplicas": 1, "maxReplicas": 2}, "maxReplicas", "expected at least replicas, 3"),
        ({"maxReplicas": 4}, "maxReplicas", "fixed without minReplicas"),
    ],
)
def test_numbers_that_contradict_each_other(
    worker: Object, field: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "ELASTIC_STRATEGIES", ("ParameterServer",))
    (found,) = refusals(cluster("ParameterServer", {"replicas": 3, **worker})).items()
    assert found[0] == f"spec.worker.{field}"
    assert expected in found[1]


def test_a_strategy_without_elastic_workers() -> None:
    found = refusals(cluster("Mirrored", {"replicas": 1, "minReplicas": 1}))
    assert found == {"spec.worker.minReplicas": "Mirrored has a fixed number of workers: remove it"}
