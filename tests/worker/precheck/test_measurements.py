"""What tasks measure before they train: real processes, on machines of which one has a slow link."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.backends import precheck_outliers
from launcher.status import Phase, RunStatus, TaskStatus
from tests import slow_network
from tests.free_ports import free_ports
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Prechecked, Record
from worker.contract.run_config import Precheck, RunConfig
from worker.precheck.network import measured_by

DEADLINE_SECONDS = 30


def config(cluster: Mapping[str, Sequence[str]], directory: Path) -> RunConfig:
    return RunConfig(
        run="tiny",
        strategy="ParameterServer" if "ps" in cluster else "MultiWorkerMirrored",
        replicas={role: len(addresses) for role, addresses in cluster.items()},
        starting_deadline_seconds=DEADLINE_SECONDS,
        stall_seconds=60,
        chief_lost_seconds=60,
        model_dir=str(directory),
        precheck=Precheck(cluster, only=True),
    )


def start(
    config: RunConfig, directory: Path, role: str, index: int, prefix: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Starts a task that knows only itself, as a worker or ps of a ParameterServer run."""
    (directory / "run.json").write_text(config.to_json())
    addresses = config.precheck.cluster[role] if config.precheck is not None else ()
    itself = {"cluster": {role: {index: addresses[index]}}, "task": {"type": role, "index": index}}
    environment = {
        **os.environ,
        Env.CONFIG: str(directory / "run.json"),
        Env.TF_CONFIG: json.dumps(itself),
        Env.ROLE: role,
        Env.LOCAL: "test",
    }
    command = [*prefix, sys.executable, "-m", "worker"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def records(process: subprocess.Popen[str]) -> list[Record]:
    output, _ = process.communicate(timeout=120)
    return [record for line in output.splitlines() if (record := Record.parse(line)) is not None]


def prechecked(records: Sequence[Record]) -> Prechecked:
    (content,) = [record.content for record in records if record.event == Event.PRECHECKED]
    assert isinstance(content, Prechecked)
    return content


def status(contents: Mapping[str, Prechecked]) -> RunStatus:
    """Returns the status of a run whose tasks have measured this, each on a node of its own."""
    tasks = tuple(
        TaskStatus(name, "worker", number, Phase.RUNNING, node=f"n{number}")
        for number, name in enumerate(contents)
    )
    made = {
        name: {Event.PRECHECKED: Record(Event.PRECHECKED, name, time.time(), content._asdict())}
        for name, content in contents.items()
    }
    return RunStatus("tiny", "default", Phase.RUNNING, False, "", "", (), tasks=tasks, records=made)


def test_a_machine_with_a_slow_link_is_far_off(tmp_path: Path) -> None:
    with slow_network.machines(4) as machines:
        slow_network.limit(machines[2], "10mbit")
        slow_network.limit_port(machines, 2, "10mbit")
        cluster = {"worker": [f"{slow_network.address(number)}:2222" for number in range(4)]}
        tasks = [
            start(config(cluster, tmp_path), tmp_path, "worker", number, slow_network.command(machine, ()))
            for number, machine in enumerate(machines)
        ]
        all_records = [records(task) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0, 0]
    contents = {f"tiny-worker-{number}": prechecked(each) for number, each in enumerate(all_records)}
    for content in contents.values():
        assert content.compute.keys() == {"CPU"}
        assert set(content.storage) == {
            f"{place} {direction}" for place in ("disk", "model directory") for direction in ("write", "read")
        }
        assert len(content.bandwidth) == len(content.latency) == 2
        assert content.seconds <= 20
    assert max(contents["tiny-worker-2"].bandwidth.values()) == pytest.approx(1.25, rel=0.3)
    measured = status(contents)
    bandwidths, _ = precheck_outliers.best_links(measured)
    assert min(bandwidths, key=lambda name: bandwidths[name]) == "tiny-worker-2"
    far_off = precheck_outliers.of_run(measured)
    by_network = [outlier.task for outlier in far_off if "reaches the others at" in outlier.text]
    assert "tiny-worker-2" in by_network  # the four share this machine's processors, which others may take
    assert not list(tmp_path.glob(".tf-launcher-precheck*"))


def test_tasks_that_know_only_themselves_measure_to_each_other(tmp_path: Path) -> None:
    """A chief, two workers and a ps; the chief comes later."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
    cluster = {"chief": addresses[:1], "worker": addresses[1:3], "ps": addresses[3:]}
    started = config(cluster, tmp_path)
    tasks = [start(started, tmp_path, *task) for task in (("worker", 0), ("worker", 1), ("ps", 0))]
    time.sleep(6)
    tasks.append(start(started, tmp_path, "chief", 0))
    others = [set(prechecked(records(task)).bandwidth) for task in tasks]
    assert others == [
        {"tiny-worker-1", "tiny-chief-0"},
        {"tiny-chief-0", "tiny-ps-0"},
        {"tiny-worker-0", "tiny-worker-1"},
        {"tiny-ps-0", "tiny-worker-0"},
    ]


def test_a_task_whose_pod_was_replaced_measures_without_the_others(tmp_path: Path) -> None:
    """They train, and their TensorFlow listens at the port."""
    port, own = free_ports(2)
    with socket.create_server(("127.0.0.1", port)) as other:

        def answer() -> None:
            while True:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                connection.recv(9)
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        cluster = {"worker": [f"127.0.0.1:{port}", f"127.0.0.1:{own}"]}
        task = start(config(cluster, tmp_path), tmp_path, "worker", 1)
        content = prechecked(records(task))
        other.shutdown(socket.SHUT_RDWR)
    assert (task.returncode, content.bandwidth, content.latency) == (0, {}, {})
    assert content.compute["CPU"] > 0


def test_a_task_whose_others_do_not_come_says_so_and_leaves(tmp_path: Path) -> None:
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    given = replace(config(cluster, tmp_path), starting_deadline_seconds=1, precheck=Precheck(cluster))
    task = start(given, tmp_path, "worker", 0)
    all_records = records(task)
    assert task.returncode == ExitCode.RETRYABLE
    assert "no answer from tiny-worker-1" in all_records[-1].fields["message"]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 1000])
def test_each_task_measures_to_a_few_and_as_many_measure_to_it(count: int) -> None:
    tasks = [f"worker-{number}" for number in range(count)]
    ahead = {task: measured_by(tasks, task) for task in tasks}
    assert all(1 <= len(others) <= 3 and task not in others for task, others in ahead.items())
    behind = [sum(task in others for others in ahead.values()) for task in tasks]
    assert set(behind) == {len(ahead[tasks[0]])}
