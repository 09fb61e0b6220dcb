"""The tasks of a cluster, and the TF_CONFIG of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.config.spec import TrainingCluster
from launcher.plan import topology
from launcher.plan.topology import Topology
from worker.contract.run_config import ElasticWorkers


def plan(strategy: str, *, program: bool = True, **roles: Any) -> Topology:
    spec: dict[str, Any] = {"strategy": strategy, **roles}
    spec |= {"program": {"entrypoint": "mnist:Mnist"}} if program else {"command": ["python", "train.py"]}
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "mnist", "namespace": "vision"},
        "spec": spec,
    }
    return topology.build(TrainingCluster.model_validate_json(json.dumps(document)))


def told(planned: Topology, role: Any, index: int) -> Any:
    """Returns TF_CONFIG as the pod with this index sees it."""
    text = planned.tf_config(role)
    return None if text is None else json.loads(text.replace("$(TASK_INDEX)", str(index)))


def at(role: str, index: int) -> str:
    return f"mnist-{role}-{index}.mnist:2222"


def test_parameter_server_is_sparse_for_workers_and_ps() -> None:
    planned = plan("ParameterServer", worker={"replicas": 2}, ps={"replicas": 2}, evaluator={})
    everyone = {
        "chief": [at("chief", 0)],
        "worker": [at("worker", 0), at("worker", 1)],
        "ps": [at("ps", 0), at("ps", 1)],
    }
    assert told(planned, "chief", 0) == {"cluster": everyone, "task": {"type": "chief", "index": 0}}
    assert told(planned, "worker", 1) == {
        "cluster": {"worker": {"1": at("worker", 1)}},
        "task": {"type": "worker", "index": 1},
    }
    assert told(planned, "ps", 1) == {
        "cluster": {"ps": {"1": at("ps", 1)}},
        "task": {"type": "ps", "index": 1},
    }
    assert told(planned, "evaluator", 0) == {
        "cluster": {"evaluator": [at("evaluator", 0)]},
        "task": {"type": "evaluator", "index": 0},
    }
    assert planned.primary == "chief"
    assert [task.pod_name for task in planned.tasks] == [
        "mnist-chief-0",
        "mnist-worker-0",
        "mnist-worker-1",
        "mnist-ps-0",
        "mnist-ps-1",
        "mnist-evaluator-0",
    ]


def test_an_elastic_run_lists_the_workers_that_it_may_get() -> None:
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}
    planned = plan("ParameterServer", worker=worker, ps={})
    assert planned.elastic == ElasticWorkers(1, 4, 2)
    assert told(planned, "chief", 0)["cluster"]["worker"] == [at("worker", index) for index in range(4)]
    assert told(planned, "worker", 3)["cluster"] == {"worker": {"3": at("worker", 3)}}
    planned = plan("MultiWorkerMirrored", chief={}, worker={"replicas": 2, "minReplicas": 1})
    assert planned.elastic == ElasticWorkers(1, 2, 2)
    assert len(told(planned, "worker", 0)["cluster"]["worker"]) == 2
    assert plan("MultiWorkerMirrored", chief={}, worker={"replicas": 2}).elastic is None


def test_a_script_of_the_users_may_count_the_workers() -> None:
    roles: dict[str, Any] = {"worker": {"replicas": 3}, "ps": {}}
    planned = plan("ParameterServer", program=False, **roles)
    assert len(told(planned, "worker", 2)["cluster"]["worker"]) == 3
    assert len(told(planned, "ps", 0)["cluster"]["worker"]) == 3
    planned = plan("ParameterServer", program=False, sparseClusterSpec=True, **roles)
    assert told(planned, "worker", 2)["cluster"] == {"worker": {"2": at("worker", 2)}}


@pytest.mark.parametrize("chief", [False, True])
def test_multi_worker_lists_everyone_in_each(chief: bool) -> None:
    roles: dict[str, Any] = {"chief": {}} if chief else {}
    planned = plan("MultiWorkerMirrored", worker={"replicas": 2}, evaluator={}, **roles)
    everyone = {"chief": [at("chief", 0)]} if chief else {}
    everyone["worker"] = [at("worker", 0), at("worker", 1)]
    assert told(planned, "worker", 1) == {"cluster": everyone, "task": {"type": "worker", "index": 1}}
    assert planned.primary == ("chief" if chief else "worker")


@pytest.mark.parametrize("strategy", ["OneDevice", "Mirrored", "CentralStorage", "TPU"])
@pytest.mark.parametrize("roles", [{}, {"chief": {}}, {"worker": {"replicas": 1}}])
def test_one_task_is_told_nothing(strategy: str, roles: dict[str, Any]) -> None:
    planned = plan(strategy, evaluator={}, **roles)
    assert planned.alone
    assert planned.tf_config(planned.primary) is None
    assert told(planned, "evaluator", 0)["task"] == {"type": "evaluator", "index": 0}


def test_a_lone_collective_worker_waits_for_nobody() -> None:
    planned = plan("MultiWorkerMirrored", worker={"replicas": 1})
    assert planned.tf_config("worker") is None


def test_all_of_tf_config_together_grows_linearly() -> None:
    def total(workers: int) -> int:
        planned = plan("ParameterServer", worker={"replicas": workers}, ps={"replicas": 20})
        return sum(len(planned.tf_config(role.name) or "") * role.replicas for role in planned.roles)

    assert total(1000) < 200_000
    assert total(2000) < 2.1 * total(1000)


def test_a_long_list_goes_into_a_file() -> None:
    assert plan("ParameterServer", worker={"replicas": 1000}, ps={}).file_roles == frozenset()
    assert plan("ParameterServer", worker={"replicas": 10_000}, ps={}).file_roles == {"chief"}
    everyone = plan("MultiWorkerMirrored", chief={}, worker={"replicas": 5_000}, evaluator={})
    assert everyone.file_roles == {"chief", "worker"}


def test_a_script_of_the_users_reads_no_file() -> None:
    planned = plan("MultiWorkerMirrored", program=False, worker={"replicas": 3_500})
    assert topology.FILE_BYTES < planned.tf_config_bytes("worker") < topology.MAX_ENV_BYTES
    assert planned.file_roles == frozenset()
