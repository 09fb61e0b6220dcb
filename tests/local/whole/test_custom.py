"""A run of strategy Custom as processes, whose images do not notice each other's end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.config.spec import TrainingCluster
from launcher.status import Phase, RunStatus
from launcher.validation.loader import Loaded
from tests.local.machine import Machine, eventually, python

FOR_EVER = python("import time; print('up', flush=True); time.sleep(600)")
ENDS = python("print('done')")


def after(path: Path, code: int = 0) -> list[str]:
    """Returns a command that ends with the code once the file exists."""
    return python(
        "import pathlib, sys, time\n"
        f"while not pathlib.Path({str(path)!r}).exists(): time.sleep(0.02)\n"
        f"sys.exit({code})"
    )


def submit(machine: Machine, **spec: Any) -> None:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "demo"},
        "spec": {"strategy": "Custom", **spec},
    }
    cluster = TrainingCluster.model_validate_json(json.dumps(document))
    plan = plan_of_file.plan(Loaded(cluster, Path(), "test"))
    machine.backend.submit(plan, detach=True)


def reasons(status: RunStatus) -> dict[str, str]:
    return {role.role: role.reason for role in status.roles}


def test_servers_that_never_end_are_stopped(machine: Machine) -> None:
    submit(machine, chief={"command": ENDS}, ps={"replicas": 2, "command": FOR_EVER})
    status = machine.end()
    assert status.phase is Phase.SUCCEEDED
    assert reasons(status) == {"chief": "CompletionsReached", "ps": "RunEnded"}
    assert machine.processes() == []


@pytest.mark.parametrize("role", ["worker", "ps", "evaluator"])
def test_whoever_fails_takes_the_run_along(machine: Machine, role: str) -> None:
    submit(
        machine,
        chief={"command": FOR_EVER},
        **{role: {"command": python("raise SystemExit(1)"), "restartPolicy": "Never"}},
    )
    status = machine.end()
    assert status.phase is Phase.FAILED
    assert status.message.startswith(f"Stopped, since demo-{role} has failed (demo-{role}-0 ended with")
    assert machine.processes() == []


def test_the_first_worker_ends_the_others(machine: Machine, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"import os, pathlib, time\nwhile os.environ['TASK_INDEX'] != '0' or not pathlib.Path({str(go)!r})"
    submit(
        machine, worker={"replicas": 3, "command": python(f"print('up')\n{wait}.exists(): time.sleep(0.02)")}
    )
    eventually(lambda: machine.texts("worker").count("up") == 3, "three workers")
    go.touch()
    status = machine.end()
    assert (status.phase, status.roles[0].succeeded) == (Phase.SUCCEEDED, 1)
    assert reasons(status) == {"worker": "SuccessPolicy"}


def test_exit_codes_say_who_is_tried_again(machine: Machine, tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        f"seen = pathlib.Path({str(tmp_path)!r}, os.environ['TASK_INDEX'])\n"
        "again = seen.exists()\n"
        "seen.touch()\n"
        "sys.exit(127 if again else 128)"
    )
    submit(
        machine,
        worker={"command": python(code), "restartPolicy": "ExitCode"},
        runPolicy={"backoffLimit": None},
    )
    status = machine.end()
    assert status.phase is Phase.FAILED
    assert reasons(status) == {"worker": "PodFailurePolicy"}
    assert [status.tasks[0].restarts, status.tasks[0].exit_code] == [1, 127]


def test_without_a_limit_it_is_tried_until_it_works(machine: Machine, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        f"seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        "count = len(seen.read_text()) if seen.exists() else 0\n"
        "seen.write_text('x' * (count + 1))\n"
        "sys.exit(1 if count < 8 else 0)"
    )
    submit(machine, worker={"command": python(code)}, runPolicy={"backoffLimit": None})
    status = machine.end()
    assert (status.phase, status.tasks[0].restarts) == (Phase.SUCCEEDED, 8)


def test_a_worker_that_may_go_is_not_missed(machine: Machine, tmp_path: Path) -> None:
    lost = python("raise SystemExit(1)")
    submit(
        machine,
        chief={"command": after(tmp_path / "go")},
        worker={"replicas": 2, "command": lost, "restartPolicy": "Never"},
        sparseClusterSpec=True,
    )
    eventually(lambda: machine.status().roles[1].phase is Phase.FAILED, "the workers' failure")
    # Longer than the time for a primary to fail of the same cause.
    time.sleep(3 * machine.settings.failed_seconds)
    assert machine.status().phase is Phase.RUNNING
    (tmp_path / "go").touch()
    assert machine.end().phase is Phase.SUCCEEDED
