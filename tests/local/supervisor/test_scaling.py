"""The workers of an elastic run come and go on this machine, by its command and by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Selection
from launcher.backends.local.store import RunDirectory
from launcher.errors import ConflictError, NotFoundError
from launcher.object_names import ELASTIC_ANNOTATION
from launcher.status import Phase, RunStatus
from tests.local.machine import Machine, eventually, job
from worker.contract.run_config import ElasticWorkers

WAIT = "import time; print('up'); time.sleep(600)"
"""A task that ends only on SIGTERM, as a worker that was never released."""

POLITE = (
    "import os, signal, sys, time\n"
    "def leave(*_):\n    print('told to leave', flush=True)\n    sys.exit(143)\n"
    "signal.signal(signal.SIGTERM, leave)\n"
    "print('up', flush=True)\n"
    "time.sleep(600)\n"
)


def until(path: Path) -> str:
    """Returns code that succeeds once the file exists."""
    return f"import pathlib, time\nwhile not pathlib.Path({str(path)!r}).exists(): time.sleep(0.02)"


def elastic(code: str, replicas: int = 3, least: int = 1, most: int = 5, **spec: Any) -> dict[str, Any]:
    """Returns the workers' Job of an elastic run as the launcher renders it."""
    made = job("worker", code, replicas=replicas, **{"backoffLimitPerIndex": 0, **spec})
    made["metadata"]["annotations"][ELASTIC_ANNOTATION] = ElasticWorkers(least, most, replicas).to_json()
    return made


def working(status: RunStatus) -> list[int]:
    """Returns the numbers of the workers that run."""
    return [task.index for task in status.tasks if task.role == "worker" and task.phase is Phase.RUNNING]


def come_to(machine: Machine, *workers: int) -> RunStatus:
    """Waits until exactly these workers run."""

    def seen() -> RunStatus | None:
        status = machine.status()
        return status if working(status) == list(workers) else None

    status = eventually(seen, f"the workers {workers}")
    assert isinstance(status, RunStatus)
    return status


def scale(machine: Machine, workers: int) -> int:
    return machine.backend.scale("demo", "default", workers)


def test_workers_come_and_go(machine: Machine, tmp_path: Path) -> None:
    end = tmp_path / "end"
    addresses = [f"demo-worker-{index}.demo:2222" for index in range(5)]
    code = f"import os\nprint('I am', os.environ['OWN'], flush=True)\n{POLITE}"
    worker = elastic(code)
    variables = worker["spec"]["template"]["spec"]["containers"][0]["env"]
    variables.append({"name": "OWN", "value": "demo-worker-$(TASK_INDEX).demo:2222"})
    machine.submit(job("chief", until(end), primary=True), worker, addresses=addresses)
    come_to(machine, 0, 1, 2)

    assert scale(machine, 5) == 3
    come_to(machine, 0, 1, 2, 3, 4)
    submission = machine.directory().submission()
    assert submission is not None
    for address in addresses:  # each has the port that was reserved for it from the start
        machine.printed(f"I am {submission.addresses[address]}")
    eventually(lambda: machine.texts("worker").count("up") == 5, "each hears SIGTERM")

    assert scale(machine, 1) == 5
    status = come_to(machine, 0)
    assert [(role.role, role.desired, role.failed) for role in status.roles] == [
        ("chief", 1, 0),
        ("worker", 1, 0),
    ]
    assert machine.texts("worker").count("told to leave") == 4
    assert scale(machine, 1) == 1, "it has that many already"
    last = Selection(names=("worker-4",))
    assert "told to leave" in [
        line.text for line in machine.backend.logs("demo", "default", last, follow=False)
    ]

    assert scale(machine, 2) == 1
    status = come_to(machine, 0, 1)
    assert [task.restarts for task in status.tasks if task.role == "worker"] == [0, 0]

    end.touch()
    assert machine.end().phase is Phase.SUCCEEDED
    with pytest.raises(ConflictError, match="run demo has ended, so it cannot be scaled"):
        scale(machine, 3)


def test_a_worker_that_failed_for_good_is_tried_again_when_it_comes_back(
    machine: Machine, tmp_path: Path
) -> None:
    end, mended = tmp_path / "end", tmp_path / "mended"
    code = (
        "import os, pathlib\n"
        f"if os.environ['TASK_INDEX'] == '2' and not pathlib.Path({str(mended)!r}).exists():\n"
        f"    raise SystemExit(3)\n{WAIT}"
    )
    machine.submit(job("chief", until(end), primary=True), elastic(code))

    def failed() -> RunStatus | None:
        status = machine.status()
        return status if status.roles[1].failed == 1 and working(status) == [0, 1] else None

    status = eventually(failed, "the failure of worker 2")
    assert (status.phase, status.roles[1].phase) == (Phase.RUNNING, Phase.RUNNING)
    mended.touch()
    scale(machine, 2)
    scale(machine, 3)
    come_to(machine, 0, 1, 2)
    end.touch()
    assert machine.end().phase is Phase.SUCCEEDED


def test_a_run_ends_when_fewer_workers_are_left_than_it_needs(machine: Machine, tmp_path: Path) -> None:
    fail = tmp_path / "fail"
    code = (
        f"import os, pathlib, time\nprint('up', flush=True)\n"
        f"while not pathlib.Path({str(fail)!r} + os.environ['TASK_INDEX']).exists(): time.sleep(0.02)\n"
        "raise SystemExit(1)\n"
    )
    machine = Machine(machine.root, replace(machine.settings, failed_seconds=0.3))
    machine.submit(job("chief", WAIT, primary=True), elastic(code, replicas=4, least=2))
    come_to(machine, 0, 1, 2, 3)
    for index in (3, 1):
        Path(f"{fail}{index}").touch()
    status = come_to(machine, 0, 2)
    assert status.phase is Phase.RUNNING
    Path(f"{fail}0").touch()
    status = machine.end()
    assert status.phase is Phase.FAILED
    assert status.message == (
        "Stopped, since 1 task is left of demo-worker, the others have failed for good "
        "(demo-worker-0 ended with exit code 1), and the run needs 2"
    )


def test_what_cannot_be(machine: Machine, tmp_path: Path) -> None:
    end = tmp_path / "end"
    machine.submit(job("chief", until(end), primary=True), elastic(WAIT, least=2))
    come_to(machine, 0, 1, 2)
    for workers in (0, 1, 6):
        with pytest.raises(ConflictError, match=f"run demo can have 2 to 5 workers, not {workers}"):
            scale(machine, workers)
    machine.backend.suspend("demo", "default")
    with pytest.raises(ConflictError, match="run demo is suspended, so it cannot be scaled") as caught:
        scale(machine, 4)
    assert "resume demo" in caught.value.hint
    machine.backend.resume("demo", "default")
    come_to(machine, 0, 1, 2)
    with pytest.raises(NotFoundError):
        machine.backend.scale("other", "default", 2)
    end.touch()
    machine.end()


def test_a_run_whose_workers_are_fixed(machine: Machine, tmp_path: Path) -> None:
    end = tmp_path / "end"
    machine.submit(job("chief", until(end), primary=True), job("worker", WAIT, replicas=2))
    with pytest.raises(ConflictError, match="the workers of run demo are 2 for as long as it lasts"):
        scale(machine, 3)
    end.touch()
    machine.end()


def test_of_two_commands_at_once_the_first_wins(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = tmp_path / "end"
    machine.submit(job("chief", until(end), primary=True), elastic(WAIT))
    come_to(machine, 0, 1, 2)
    send = RunDirectory.send

    def after_another(self: RunDirectory, word: str) -> bool:
        return send(self, f"scale:demo-worker:4:1\n{word}")

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "send", after_another)
        with pytest.raises(ConflictError, match="scaled by somebody else meanwhile: it is to have 4 workers"):
            scale(machine, 5)
    come_to(machine, 0, 1, 2, 3)
    end.touch()
    assert machine.end().phase is Phase.SUCCEEDED
