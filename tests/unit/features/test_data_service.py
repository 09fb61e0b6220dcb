"""The data service in the file, in the objects and in what ends a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.backends import scalable_roles
from launcher.backends.run_end_rule import FAILED_SECONDS, Role, decide
from launcher.config.spec import TrainingCluster
from launcher.errors import ConflictError, SpecError
from launcher.object_names import ELASTIC_ANNOTATION, ROLE_LABEL
from launcher.plan import gang_scheduling, rendering, topology
from launcher.status import Phase
from launcher.validation import python_in_data, rules, source
from launcher.validation.loader import Loaded, load
from tests.unit import files
from worker.contract.run_config import DataService, RunConfig
from worker.contract.task_names import DATA_WORKER, DISPATCHER

Object = dict[str, Any]
SERVICE = {"workers": 3, "resources": {"cpu": 2, "memory": "4Gi"}}


def cluster(strategy: str = "ParameterServer", service: Object | None = None, **spec: Any) -> TrainingCluster:
    roles: Object = {"worker": {"replicas": 2}, "ps": {}} if strategy == "ParameterServer" else {}
    return files.cluster(strategy, dataService=service or SERVICE, **roles, **spec)


def objects(training_cluster: TrainingCluster, *, jobset: bool = False) -> list[Object]:
    return rendering.render(topology.build(training_cluster, jobset=jobset))


def jobs(training_cluster: TrainingCluster) -> dict[str, Object]:
    return {
        item["metadata"]["labels"][ROLE_LABEL]: item
        for item in objects(training_cluster)
        if item["kind"] == "Job"
    }


def test_the_service_is_two_jobs_however_many_data_workers() -> None:
    jobs_by_role = jobs(cluster(service={**SERVICE, "workers": 500}))
    assert list(jobs_by_role) == ["chief", "worker", "ps", DISPATCHER, DATA_WORKER]
    assert [jobs_by_role[role]["spec"]["completions"] for role in (DISPATCHER, DATA_WORKER)] == [1, 500]
    container = jobs_by_role[DATA_WORKER]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "4Gi"}
    dispatcher = jobs_by_role[DISPATCHER]["spec"]["template"]["spec"]["containers"][0]
    assert dispatcher["resources"] == {"requests": {"cpu": "100m", "memory": "512Mi"}}
    # The others go on without a data worker that has failed for good. The last one's failure ends the run.
    assert jobs_by_role[DATA_WORKER]["spec"]["backoffLimitPerIndex"] == 3
    assert "maxFailedIndexes" not in jobs_by_role[DATA_WORKER]["spec"]
    others = {kind for item in objects(cluster()) if (kind := item["kind"]) != "Job"}
    assert others == {item["kind"] for item in objects(cluster(service={**SERVICE, "workers": 500}))} - {
        "Job"
    }


def test_only_the_dispatcher_mounts_the_model_directory_for_its_journal() -> None:
    jobs_by_role = jobs(cluster())
    mounted = {
        role: any(each["mountPath"] == "/model" for each in container["volumeMounts"])
        for role, job in jobs_by_role.items()
        for container in job["spec"]["template"]["spec"]["containers"]
    }
    assert mounted == {"chief": True, "worker": False, "ps": False, DISPATCHER: True, DATA_WORKER: False}


def test_the_cluster_spec_has_no_data_service() -> None:
    planned = topology.build(cluster())
    assert set(planned.training_cluster) == {"chief", "worker", "ps"}
    alone = topology.build(cluster("OneDevice", chief={}))
    assert alone.alone
    assert alone.tf_config("chief") is None
    assert planned.tf_config(DATA_WORKER) == (
        '{"cluster":{"data-worker":{"$(TASK_INDEX)":"mnist-dataworker-$(TASK_INDEX).mnist:2222"}},'
        '"task":{"type":"data-worker","index":$(TASK_INDEX)}}'
    )


def test_every_task_is_told_where_the_service_is() -> None:
    (config,) = (
        item for item in objects(cluster("OneDevice", chief={})) if item["metadata"]["name"] == "mnist-config"
    )
    run_config = RunConfig.from_json(config["data"]["run.json"])
    assert run_config.data_service == DataService(
        dispatcher="mnist-dispatcher-0.mnist:2222",
        workers=[f"mnist-dataworker-{index}.mnist:2222" for index in range(3)],
        primary="mnist-chief-0.mnist:2222",
        sharding="DYNAMIC",
        shared=True,
        more=[f"mnist-dataworker-{index}.mnist:2222" for index in range(3, 16)],
    )
    assert RunConfig.from_json(run_config.to_json()) == run_config


@pytest.mark.parametrize(("workers", "most"), [(1, 16), (4, 16), (8, 32), (300, 1000), (1000, 1000)])
def test_data_workers_may_come_and_go(workers: int, most: int) -> None:
    training_cluster = cluster(service={"workers": workers})
    annotations = jobs(training_cluster)[DATA_WORKER]["metadata"]["annotations"]
    assert json.loads(annotations[ELASTIC_ANNOTATION]) == {"min": 1, "max": most, "replicas": workers}
    # The training is not elastic by that.
    planned = topology.build(training_cluster)
    assert planned.elastic is None
    assert len(planned.addresses[DATA_WORKER]) == most


@pytest.mark.parametrize(
    ("service", "spec", "jobset"),
    [
        ({**SERVICE, "sharding": "FileOrData"}, {}, False),
        (SERVICE, {"scheduling": {"queue": "team"}}, False),
        (SERVICE, {}, True),
    ],
)
def test_the_number_of_data_workers_is_fixed_where_it_cannot_change(
    service: Object, spec: Object, jobset: bool
) -> None:
    training_cluster = cluster(service=service, **spec)
    planned = topology.build(training_cluster, jobset=jobset)
    assert planned.role(DATA_WORKER).elastic is None
    assert len(planned.addresses[DATA_WORKER]) == 3
    if not jobset:
        job = jobs(training_cluster)[DATA_WORKER]
        assert job["spec"]["maxFailedIndexes"] == 0
        with pytest.raises(
            ConflictError, match="the data workers of run mnist are 3 for as long as"
        ) as caught:
            scalable_roles.change("mnist", [job], DATA_WORKER, 5)
        assert "--replace" in caught.value.hint


def test_no_run_has_a_job_that_is_called_as_the_data_workers_of_another() -> None:
    for jobset in (False, True):
        data = topology.build(cluster(), jobset=jobset)
        for prefix in ("mnist-data", "mnist"):
            metadata = cluster().metadata.model_copy(update={"name": prefix})
            named = cluster().model_copy(update={"metadata": metadata})
            other = topology.build(named, jobset=jobset)
            names = {other.job_name(role.name) for role in other.roles if role.name != DATA_WORKER}
            assert data.job_name(DATA_WORKER) not in names


@pytest.mark.parametrize("mode", ["Evaluate", "Predict"])
def test_a_run_that_trains_nothing_starts_none_and_says_so(mode: str) -> None:
    training_cluster = cluster(mode=mode)
    assert not jobs(training_cluster).keys() & {DISPATCHER, DATA_WORKER}
    assert f"spec.dataService: none is started, since mode: {mode} trains nothing" in rules.notices(
        training_cluster
    )


def test_a_journal_without_a_lasting_place_is_noted() -> None:
    assert not any("journal" in notice for notice in rules.notices(cluster()))
    assert any("no lasting place" in notice for notice in rules.notices(cluster(modelDir="gs://bucket/run")))


def test_elastic_workers_of_a_collective_read_by_themselves() -> None:
    training_cluster = cluster("MultiWorkerMirrored", worker={"replicas": 2, "minReplicas": 1})
    assert (
        ("spec", "dataService"),
        "elastic workers of a collective read the data by themselves: remove it, or minReplicas",
    ) in rules.broken(training_cluster)


def test_a_gang_has_the_dispatcher_and_one_data_worker() -> None:
    assert gang_scheduling.members(topology.build(cluster())) == {
        "chief": 1,
        "worker": 1,
        "ps": 1,
        DISPATCHER: 1,
        DATA_WORKER: 1,
    }


def test_in_a_jobset_a_data_worker_is_tried_again_by_its_own_job() -> None:
    (jobset_object,) = (item for item in objects(cluster(), jobset=True) if item["kind"] == "JobSet")
    specs = {job["name"]: job["template"]["spec"] for job in jobset_object["spec"]["replicatedJobs"]}
    assert specs["dispatcher"]["backoffLimit"] == 3
    assert specs["dataworker"]["backoffLimitPerIndex"] == 3


@pytest.mark.parametrize("role", [DISPATCHER, DATA_WORKER])
def test_a_part_of_the_service_that_has_failed_for_good_ends_the_run(role: str) -> None:
    chief = Role("chief", "demo-chief", Phase.RUNNING)
    failure = f"demo-{role}-0 ended with exit code 70"
    failed = Role(role, f"demo-{role}", Phase.FAILED, ended_at=1.0, last_failure=failure)
    (stop,) = decide(chief, [failed], "Running", 1.0 + FAILED_SECONDS).stops
    assert stop.jobs == ("demo-chief",)
    assert stop.message == (
        f"Stopped, since demo-{role} has failed ({failure}), and the run cannot go on without it"
    )


PROGRAM = """
import tensorflow as tf

def generated():
    return tf.data.Dataset.from_generator(iter, output_signature=tf.TensorSpec([]))

def parsed(record):
    return tf.py_function(len, [record], tf.int32)

class Program:
    def model(self): ...

    def train_dataset(self, batch_size):
        return tf.data.Dataset.range(9).map(parsed).batch(batch_size)

    def evaluation_dataset(self, batch_size):
        return generated().batch(batch_size)
"""


def loaded(folder: Path, program: str, service: str = "dataService: {workers: 1}") -> Loaded:
    (folder / "train.py").write_text(program)
    (folder / "cluster.yaml").write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: mnist}\nspec:\n"
        "  strategy: OneDevice\n  program: {source: train.py, entrypoint: train:Program}\n"
        f"  {service}\n"
    )
    (cluster_file,) = load(folder / "cluster.yaml")
    return cluster_file


def test_python_that_the_training_data_reaches_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        source.read(loaded(tmp_path, PROGRAM))
    (problem,) = caught.value.problems
    assert problem.message == (
        "train.py:8: py_function runs Python code, which cannot be sent to the data workers of "
        "spec.dataService: write it with TensorFlow operations, or remove spec.dataService"
    )
    assert problem.line == 6
    # Without data workers, and in data that they do not carry out, it is allowed.
    assert source.read(loaded(tmp_path, PROGRAM, "mode: Train")) is not None
    assert source.read(loaded(tmp_path, PROGRAM.replace("map(parsed)", "map(abs)"))) is not None


def test_python_is_found_over_several_files_and_methods() -> None:
    files = {
        "a.py": b"def train_dataset(n):\n  return _made(n)\ndef _made(n):\n  return made(n)",
        "b.py": b"def made(n):\n  tf.numpy_function(f, [n], tf.int32)\ndef unused(n):\n  tf.py_func(n)",
        "c.py": b"not python (",
        "d.txt": b"py_function",
    }
    assert [sentence.partition(" ")[0] for sentence in python_in_data.reached_calls(files)] == ["b.py:2:"]
