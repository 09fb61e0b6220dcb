"""A worker that a queue admits by itself: its number, and what it does without a chief."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import RunConfig
from worker.peers import admitted_alone
from worker.task import Task, from_environment

TYPE = "extra-worker"


def config(chief: str, **fields: Any) -> RunConfig:
    return RunConfig(
        run="demo",
        strategy="ParameterServer",
        replicas={"chief": 1, "worker": 4, "ps": 1},
        starting_deadline_seconds=1,
        stall_seconds=90,
        chief_lost_seconds=90,
        entrypoint="tiny:Tiny",
        chief_address=chief,
        first_extra_worker=2,
        **fields,
    )


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of extra worker 1 of a run with two workers beside it. Returns the directory."""
    (tmp_path / "run.json").write_text(config("127.0.0.1:1").to_json())
    monkeypatch.setenv(Env.CONFIG, str(tmp_path / "run.json"))
    monkeypatch.setenv(Env.ROLE, TYPE)
    monkeypatch.setenv(Env.TASK_INDEX, "1")
    return tmp_path


@pytest.mark.parametrize(
    "cluster",
    [
        {TYPE: {"1": "d:4"}},
        {"chief": ["c:1"], "worker": ["a:1", "b:2", "c:3", "d:4"]},
    ],
    ids=["knows itself", "knows all"],
)
def test_its_number_follows_on_those_of_the_others(
    extra: Path, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any]
) -> None:
    monkeypatch.setenv(Env.TF_CONFIG, json.dumps({"cluster": cluster, "task": {"type": TYPE, "index": 1}}))
    task = from_environment()
    assert (task.role, task.index, task.address) == ("worker", 3, "d:4")
    assert task.name == "demo-extraworker-1"
    assert [task.pod("worker", index) for index in range(3)] == [
        "demo-worker-0",
        "demo-worker-1",
        "demo-extraworker-0",
    ]
    # What TensorFlow reads.
    assert json.loads(os.environ[Env.TF_CONFIG])["task"] == {"type": "worker", "index": 3}
    assert TYPE not in json.loads(os.environ[Env.TF_CONFIG])["cluster"]
    assert from_environment() == task


def test_a_cluster_from_a_file_counts_it_too(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(Env.TF_CONFIG, raising=False)
    (extra / "cluster.json").write_text(
        json.dumps({"chief": ["c:1"], "worker": ["a:1", "b:2", "c:3", "d:4"]})
    )
    monkeypatch.setenv(Env.CLUSTER_FILE, str(extra / "cluster.json"))
    task = from_environment()
    assert (task.role, task.index, task.address) == ("worker", 3, "d:4")


def test_it_leaves_its_place_to_a_chief_that_does_not_come(extra: Path) -> None:
    """The quota that it has may be what the chief waits for. No try is used up."""
    environment = {**os.environ, Env.TF_CONFIG: json.dumps({"task": {"type": TYPE, "index": 1}})}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "worker"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == ExitCode.PREEMPTED, done.stderr
    assert "leaves its place in the queue" in done.stderr
    assert time.monotonic() - began >= 1


def test_it_goes_on_with_a_chief_that_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        address = f"127.0.0.1:{chief.getsockname()[1]}"
        task = Task(config=config(address), role="worker", index=2, cluster={}, directory=None, source=None)
        doing: list[str] = []
        admitted_alone.wait_for_chief(task, doing.append)
    assert doing == []


@pytest.mark.parametrize(("index", "seconds"), [(1, 900), (2, 60)])
def test_it_waits_less_for_a_chief_that_is_away(index: int, seconds: int) -> None:
    task = Task(config("c:1"), role="worker", index=index, cluster={}, directory=None, source=None)
    assert admitted_alone.patience(task, 900) == seconds
