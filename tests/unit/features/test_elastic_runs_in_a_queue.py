"""An elastic run in a queue of Kueue's: minReplicas workers are admitted with it, the others one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.backends import scalable_roles
from launcher.errors import ConflictError, SpecError
from launcher.object_names import GROUP_LABEL, QUEUE_LABEL
from launcher.plan import pods, topology
from launcher.status import fold
from launcher.validation import loader
from tests.unit.features.test_elastic_runs import Object, cluster, environment, jobs, refusals
from worker.contract.environment import Env
from worker.contract.run_config import ElasticWorkers, elastic_workers

STRATEGIES = ["ParameterServer", "MultiWorkerMirrored"]
WORKER: Object = {"replicas": 3, "minReplicas": 1, "maxReplicas": 5}
QUEUE: Object = {"queue": "team"}


def queued(strategy: str, worker: Object = WORKER, **spec: Any) -> dict[str, Object]:
    return jobs(cluster(strategy, worker, scheduling=QUEUE, **spec))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_queue_admits_what_the_run_needs_together_and_the_others_one_by_one(strategy: str) -> None:
    by_role = queued(strategy, evaluator={})
    assert {role: job["spec"]["completions"] for role, job in by_role.items() if "worker" in role} == {
        "worker": 1,
        "extra-worker": 2,
    }
    needed = len(by_role) - 1  # each of the others has one task
    for role, job in by_role.items():
        metadata = job["spec"]["template"]["metadata"]
        assert metadata["labels"][QUEUE_LABEL] == "team"
        count = metadata["annotations"].get("kueue.x-k8s.io/pod-group-total-count")
        is_extra = role == "extra-worker"
        assert (GROUP_LABEL in metadata["labels"]) == (not is_extra)
        assert count == (None if is_extra else str(needed))
        assert job["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_task_knows_all_workers_there_may_be(strategy: str) -> None:
    by_role = queued(strategy)
    document = json.loads(environment(by_role["chief"])[Env.TF_CONFIG].replace("$(TASK_INDEX)", "0"))
    hosts = [address.partition(".")[0] for address in document["cluster"]["worker"]]
    assert hosts == ["mnist-worker-0", *(f"mnist-extraworker-{index}" for index in range(4))]
    for job in by_role.values():
        assert elastic_workers(environment(job)) == ElasticWorkers(1, 5, 3)
    planned = topology.build(cluster(strategy, WORKER, scheduling=QUEUE))
    config = pods.run_config(planned, "1")
    assert config.replicas["worker"] == 3
    assert [config.pod_name("worker", index) for index in (0, 1, 4)] == [
        task.pod_name for task in planned.tasks if task.pod_name in (hosts[0], hosts[1], hosts[4])
    ]


def test_extra_workers_may_fail_for_good() -> None:
    job = queued("MultiWorkerMirrored")["extra-worker"]
    assert "maxFailedIndexes" not in job["spec"]
    assert job["spec"]["podFailurePolicy"]["rules"][-1]["action"] == "FailIndex"
    assert job["metadata"]["annotations"]["tf-launcher.dev/needed"] == "false"


def test_without_a_queue_or_in_another_gang_the_workers_have_one_job() -> None:
    assert "extra-worker" not in jobs(cluster("MultiWorkerMirrored", WORKER))
    assert "extra-worker" not in jobs(cluster("MultiWorkerMirrored", WORKER, scheduling={"gang": "Volcano"}))
    assert "extra-worker" not in queued("MultiWorkerMirrored", {"replicas": 3, "minReplicas": 3})
    assert refusals(cluster("ParameterServer", WORKER, scheduling=QUEUE)) == {}


def test_it_is_no_jobset(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    training_cluster = cluster("ParameterServer", WORKER, scheduling=QUEUE)
    file.write_text(training_cluster.model_dump_json(by_alias=True, exclude_defaults=True))
    (loaded,) = loader.load(str(file))
    assert plan_of_file.plan(loaded).as_jobset is None
    with pytest.raises(SpecError, match="a JobSet's Jobs keep their numbers of tasks"):
        plan_of_file.plan(loaded, as_jobset=True)


@pytest.mark.parametrize(("workers", "completions"), [(2, 1), (3, 2), (5, 4)])
def test_scale_changes_the_extra_workers(workers: int, completions: int) -> None:
    change = scalable_roles.change("mnist", list(queued("ParameterServer").values()), "worker", workers)
    assert change.job["metadata"]["name"] == "mnist-extraworker"
    assert (change.completions, change.before) == (completions, 3)


@pytest.mark.parametrize("workers", [1, 6])
def test_scale_names_the_limits(workers: int) -> None:
    with pytest.raises(ConflictError, match="can have 2 to 5 workers"):
        scalable_roles.change("mnist", list(queued("ParameterServer").values()), "worker", workers)


def test_a_run_whose_extra_workers_wait_runs() -> None:
    by_role = queued("ParameterServer")
    for role, job in by_role.items():
        job["status"] = {} if role == "extra-worker" else {"active": 1, "ready": 1}
    assert fold(list(by_role.values()), []).all_run
    by_role["worker"]["status"] = {"active": 1, "ready": 0}
    assert not fold(list(by_role.values()), []).all_run
