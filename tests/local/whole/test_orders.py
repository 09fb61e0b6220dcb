"""Stacks and profiles of real trainings, asked for while they run."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file, task_orders
from launcher.errors import ConflictError
from launcher.status import Phase, latest
from launcher.validation import loader
from tests.local.machine import Machine, eventually, linux_only
from tests.s3_server import BUCKET, s3_server
from tests.worker.forked_tasks import computed
from worker.buckets.bucket import Bucket
from worker.contract.records import Progress

pytestmark = linux_only

PROGRAM = """\
import tensorflow as tf


class Program:
    def __init__(self, parameters):
        tf.keras.utils.set_random_seed(7)

    def model(self):
        inputs, dense = tf.keras.layers.Input((8,)), tf.keras.layers.Dense
        model = tf.keras.Sequential([inputs, dense(64, activation="relu"), dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.01, momentum=0.9), "mse")
        return model

    def train_dataset(self, batch_size):
        features = tf.random.stateless_normal((640, 8), seed=(1, 2))
        data = (features, tf.reduce_sum(features, 1, keepdims=True))
        return tf.data.Dataset.from_tensor_slices(data).batch(batch_size).repeat()
"""
SHORT = {"epochs": 25, "stepsPerEpoch": 70, "globalBatchSize": 16}
LONG = SHORT | {"epochs": 100_000}
OF_STRATEGY: dict[str, dict[str, Any]] = {
    "ParameterServer": {"chief": {}, "worker": {"replicas": 1}, "ps": {}},
    "MultiWorkerMirrored": {"worker": {"replicas": 2}},
}
STEPS = """
import glob, json, os, sys
from tensorflow.tsl.profiler.protobuf import xplane_pb2
found = {}
for path in glob.glob(sys.argv[1] + "/*.xplane.pb"):
    space = xplane_pb2.XSpace()
    space.ParseFromString(open(path, "rb").read())
    steps, calls = [], 0
    for plane in space.planes:
        number = [key for key, each in plane.stat_metadata.items() if each.name == "step_num"]
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                calls += "MatMul" in name
                if name == "train":
                    steps += [each.int64_value for each in event.stats if each.metadata_id in number]
    found[os.path.basename(path).partition(".")[0]] = [sorted(steps), calls]
print(json.dumps(found))
"""
WEIGHTS = """
import glob, json, sys
import tensorflow as tf
path = tf.train.latest_checkpoint(sys.argv[1] + "/checkpoints")
reader = tf.train.load_checkpoint(path)
kinds = reader.get_variable_to_dtype_map()
names = [name for name, kind in kinds.items() if kind.is_floating or kind.is_integer]
print(json.dumps({name: reader.get_tensor(name).tolist() for name in names}))
"""


def submit(
    machine: Machine, directory: Path, strategy: str, keras: int, parameters: dict[str, Any], **more: Any
) -> None:
    (directory / "tiny.py").write_text(PROGRAM)
    program = {"source": "tiny.py", "entrypoint": "tiny:Program", "keras": keras, "parameters": parameters}
    spec = {"strategy": strategy, "program": program, "modelDir": "/model", **OF_STRATEGY[strategy], **more}
    document = {"apiVersion": "launcher/v1alpha1", "kind": "TrainingCluster", "metadata": {"name": "demo"}}
    (directory / "cluster.yaml").write_text(json.dumps({**document, "spec": spec}))
    (loaded,) = loader.load(str(directory / "cluster.yaml"))
    machine.backend.submit(plan_of_file.plan(loaded, uuid.uuid4().hex), detach=True)


def trains(machine: Machine) -> None:
    """Waits for the first steps."""

    def found() -> bool:
        status = machine.status()
        assert status.phase is not Phase.FAILED, status.message
        return latest(status.records, Progress) is not None

    eventually(found, "a step")


def trained(machine: Machine) -> dict[str, Any]:
    """Waits for the end, and returns the weights and the optimizer's state."""
    status = machine.end()
    assert status.phase is Phase.SUCCEEDED, status.message
    folder = machine.backend.places("demo", "default")["model directory"]
    weights: dict[str, Any] = computed(WEIGHTS, folder)
    assert weights
    return weights


@pytest.mark.by_day
@pytest.mark.parametrize(
    ("strategy", "keras"),
    [
        pytest.param("MultiWorkerMirrored", 3),
        pytest.param("MultiWorkerMirrored", 2, marks=pytest.mark.thorough),
        pytest.param("ParameterServer", 2, marks=pytest.mark.thorough),
        pytest.param("ParameterServer", 3, marks=pytest.mark.thorough),
    ],
)
def test_all_tasks_profile_the_same_steps_and_the_numbers_stay(
    machine: Machine, tmp_path: Path, strategy: str, keras: int
) -> None:
    submit(machine, tmp_path, strategy, keras, SHORT)
    trains(machine)
    first_profile = task_orders.profile(machine.backend, "demo", "default", 20, 60.0)
    assert first_profile.problems == {}
    roles = {
        "MultiWorkerMirrored": ["worker-0", "worker-1"],
        "ParameterServer": ["chief-0", "ps-0", "worker-0"],
    }
    assert sorted(first_profile.tasks) == [f"demo-{name}" for name in roles[strategy]]
    again = task_orders.profile(machine.backend, "demo", "default", 100, 60.0)  # over an epoch's end
    assert again.first >= first_profile.first + first_profile.steps
    assert again.steps >= 100
    profiled = trained(machine)
    for profile in (first_profile, again):
        assert profile.steps >= 20
        path = Path(profile.path)
        assert path.parts[-4:-1] == ("logs", "plugins", "profile")
        parts = computed(STEPS, path)
        assert sorted(parts) == sorted(profile.tasks)
        marked = {name: steps for name, (steps, _) in parts.items() if steps}
        of_chief = marked[first_profile.tasks[0]]
        assert of_chief[0] == profile.first - 1
        assert of_chief[-1] < profile.first - 1 + profile.steps
        if strategy == "MultiWorkerMirrored":
            assert marked == dict.fromkeys(profile.tasks, of_chief)
            assert all(calls >= profile.steps for _, calls in parts.values())
        else:
            assert parts["demo-worker-0"][1] >= profile.steps
    assert any("profiled steps" in text for text in machine.texts())
    machine.backend.delete("demo", "default")
    other = tmp_path / "other"
    other.mkdir()
    submit(machine, other, strategy, keras, SHORT, storage={"reclaimPolicy": "Delete"})
    assert trained(machine) == profiled


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", OF_STRATEGY)
def test_a_profile_is_uploaded_to_a_bucket(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    with s3_server(tmp_path / "s3") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/demo"
        storage = {"endpoint": server.url, "secretName": "minio"}
        submit(machine, tmp_path, strategy, 3, LONG, modelDir=url, storage=storage)
        trains(machine)
        profile = task_orders.profile(machine.backend, "demo", "default", 20, 60.0)
        assert profile.problems == {}
        assert profile.path.startswith(f"{url}/logs/plugins/profile/")
        folder = profile.path.removeprefix(f"{url}/")
        there = {item.name for item in Bucket(url).items(folder)}
        assert there == {f"{folder}/{task}.xplane.pb" for task in profile.tasks}
        assert len(there) > 1


@pytest.mark.thorough
def test_the_stacks_of_a_collective_that_waits_for_one_that_is_stopped(
    machine: Machine, tmp_path: Path
) -> None:
    submit(machine, tmp_path, "MultiWorkerMirrored", 3, LONG)
    trains(machine)
    before = {each.task: each.text for each in task_orders.stacks(machine.backend, "demo", "default", [])}
    assert sorted(before) == ["worker-0", "worker-1"]
    assert all("worker/training/loop.py" in text for text in before.values())
    directory = machine.directory()
    state = directory.state()
    assert state is not None
    (pid,) = (
        int(pod["metadata"]["annotations"]["tf-launcher.dev/process"].split()[0])
        for pod in state["pods"]
        if pod["spec"]["hostname"] == "demo-worker-1"
    )
    (trainer,) = deepest(pid)

    def stuck() -> bool:
        first, second = task_orders.stacks(machine.backend, "demo", "default", [])
        return "quick_execute" in first.text and "stopped" in second.problem

    def seen_while_stopped() -> bool:
        """Stops it for some seconds only: without a heartbeat for longer it counts as lost."""
        os.kill(trainer, signal.SIGSTOP)
        try:
            until = time.monotonic() + 3.0
            while not (seen := stuck()) and time.monotonic() < until:
                pass
        finally:
            os.kill(trainer, signal.SIGCONT)
        time.sleep(0.0 if seen else 1.0)
        return seen

    eventually(seen_while_stopped, "worker 0 in an operation")
    step = latest(machine.status().records, Progress)
    eventually(lambda: latest(machine.status().records, Progress) != step, "later steps")
    assert {task.restarts for task in machine.status().tasks} == {0}


def deepest(pid: int) -> list[int]:
    """Returns the descendants that have no children."""
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [one for child in children for one in deepest(child)] or [pid]


@pytest.mark.thorough
def test_what_cannot_be_profiled_says_why(machine: Machine, tmp_path: Path) -> None:
    submit(machine, tmp_path, "MultiWorkerMirrored", 3, SHORT)
    with pytest.raises(ConflictError, match=r"takes no steps|only while they are taken"):
        task_orders.profile(machine.backend, "demo", "default", 20, 60.0)
    machine.end()
    with pytest.raises(ConflictError, match=r"run demo has ended, and steps"):
        task_orders.profile(machine.backend, "demo", "default", 20, 60.0)
    with pytest.raises(ConflictError, match=r"no task that is meant is running"):
        task_orders.stacks(machine.backend, "demo", "default", [])
