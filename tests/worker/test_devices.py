"""The devices of tasks, and how a task ends that asked for GPUs: the test machine has none."""

from __future__ import annotations

import pytest

from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}, "parameters": {"epochs": 1}}
ASKED = "nvidia.com/gpu: 2"


def test_every_task_says_what_it_computes_with(make_cluster: MakeCluster) -> None:
    replicas = {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}
    tasks = make_cluster(replicas=replicas, parameters={"epochs": 1}).start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    reports = {name: task.until(Event.DEVICES).fields for name, task in tasks.items()}
    counts = {name: (fields["replicas"], fields["tasks"]) for name, fields in reports.items()}
    assert counts == {
        ("chief", 0): (2, 2),
        ("worker", 0): (1, 1),
        ("worker", 1): (1, 1),
        ("ps", 0): (0, 0),
        ("evaluator", 0): (0, 0),
    }
    for fields in reports.values():
        ((kind, name, count),) = [device.values() for device in fields["devices"]]
        assert (kind, count) == ("CPU", 1)
        assert name
        assert fields["tensorflow"].startswith("2.")
        assert fields["lacking"] == ""


@pytest.mark.by_day(runtime=())
@pytest.mark.parametrize(
    ("strategy", "replicas", "devices", "expected"),
    [("Mirrored", {"chief": 1}, 2, (2, 1)), ("MultiWorkerMirrored", {"worker": 2}, 1, (2, 2))],
)
def test_replicas_of_all_tasks_and_devices_of_this_one(
    make_cluster: MakeCluster,
    strategy: str,
    replicas: dict[str, int],
    devices: int,
    expected: tuple[int, int],
) -> None:
    options = {"strategy": strategy, "replicas": replicas, "strategy_options": {"logicalCpus": devices}}
    tasks = make_cluster(**options, parameters={"epochs": 1}).start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    for task in tasks.values():
        fields = task.until(Event.DEVICES).fields
        assert (fields["replicas"], fields["tasks"]) == expected
        assert [device["count"] for device in fields["devices"]] == [devices]


def test_a_task_that_lacks_its_gpus_fails_and_says_what_to_do(make_cluster: MakeCluster) -> None:
    chief = make_cluster(**ONE, gpus={"chief": ASKED}).start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    message = chief.until(Event.FAILED).fields["message"]
    assert message.startswith("resources ask for nvidia.com/gpu: 2, and TensorFlow 2.")
    assert "built without GPU support: use an image" in message
    assert message.endswith("or let the chief continue with the CPU by allowCpu: true")
    assert not chief.records(Event.DEVICES)


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_so_do_those_that_do_not_train(make_cluster: MakeCluster, role: str) -> None:
    replicas = {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}
    task = make_cluster(replicas=replicas, gpus={role: ASKED}).start(role)
    assert task.ended() == ExitCode.PROGRAM_ERROR
    assert f"let the {role} continue" in task.until(Event.FAILED).fields["message"]


@pytest.mark.by_day(runtime=())
@pytest.mark.parametrize("by", ["allowCpu", "this machine"])
def test_it_goes_on_where_it_may(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    allowed = ["chief"] if by == "allowCpu" else []
    if by == "this machine":
        monkeypatch.setenv(Env.LOCAL, "run/pod")
    chief = make_cluster(**ONE, gpus={"chief": ASKED}, allow_cpu=allowed).start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.DEVICES).fields["lacking"] == ASKED


_SERVER = """
import json, sys
from worker import devices
from worker.contract.run_config import RunConfig
from worker.task import Task

def limits(options, gpus):
    devices.gpus = lambda: ["GPU"] * gpus
    config = RunConfig(
        run="r", strategy="ParameterServer", strategy_options=options, replicas={"worker": 1},
        starting_deadline_seconds=1, stall_seconds=1, chief_lost_seconds=1,
    )
    made = devices.server_options(Task(config, "worker", 0, {}, None, None))
    each = made.gpu_options.experimental.virtual_devices if made else []
    return [list(device.memory_limit_mb) for device in each]

print(json.dumps([limits({"gpuMemoryMB": 512}, 2), limits({"gpuMemoryMB": 512}, 0), limits({}, 2)]))
"""


def test_a_server_limits_each_of_its_gpus() -> None:
    """A server does not follow what is set for the process, so it gets the limit itself."""
    assert computed(_SERVER) == [[[512.0], [512.0]], [], []]
