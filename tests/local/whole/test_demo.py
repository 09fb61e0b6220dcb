"""`make demo` as a user runs it, with TensorFlow; also with one of its tasks killed during training."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local.machine import eventually, linux_only, pids
from tests.paths import ROOT
from worker.contract.records import Event, Record

EXAMPLE = ROOT / "examples" / "fashion-mnist" / "cluster.yaml"
SECONDS = 280
"""Limit of a whole run, which takes 20 to 50 s on an idle machine."""

pytestmark = linux_only


class Demo:
    """The command line with a state directory of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT)}

    def launcher(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "launcher", *arguments],
            cwd=self.state,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def tasks(self, role: str = "", index: int = 0) -> list[int]:
        """Returns the processes of all tasks, or of one task, its first process first."""
        wanted = [f"TF_LAUNCHER_ROLE={role}", f"TASK_INDEX={index}"] if role else []
        processes = []
        for pid in sorted(pids()):
            try:
                variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
            except OSError:
                continue
            ours = any(v.startswith(f"TF_LAUNCHER_CONFIG={self.state}") for v in variables)
            if ours and all(variable in variables for variable in wanted):
                processes.append(pid)
        return processes

    def records(self, role: str, index: int = 0, event: str = "", run: str = "fashion-mnist") -> list[Record]:
        """Returns the records of a task, of all its attempts."""
        lines = self.launcher("logs", run, "--raw", "--role", role, "--index", str(index))
        records = [record for line in lines.stdout.splitlines() if (record := Record.parse(line))]
        return [record for record in records if not event or record.event == event]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.launcher("delete", "fashion-mnist")
    demo.launcher("delete", "my-run")
    assert demo.tasks() == []


def accuracy(output: str) -> float:
    match = re.search(r"^evaluation +accuracy ([\d.]+)", output, re.MULTILINE)
    assert match, output
    return float(match[1])


@pytest.mark.thorough  # `make test` trains the starter, and kills its chief: below
def test_it_trains_to_the_end_and_nothing_is_left(demo: Demo) -> None:
    done = demo.launcher("submit", str(EXAMPLE), "--backend", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) >= 0.80
    for role, count in {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}.items():
        row = rf"^{role} +0 +{count}/{count} +0 +0 +localhost +Complete *$"
        assert re.search(row, done.stdout, re.MULTILINE), done.stdout
    assert "epoch 1/6, step 94/94" in done.stdout
    assert demo.tasks() == []
    each_epoch_was_evaluated_once(demo, last=6)


def each_epoch_was_evaluated_once(demo: Demo, last: int, run: str = "fashion-mnist") -> None:
    """The evaluator may pass over an epoch; the last one it must not."""
    records = demo.records("evaluator", event=Event.EVALUATION, run=run)
    evaluated = [record.fields["epoch"] for record in records]
    assert evaluated == sorted(set(evaluated))
    assert evaluated[-1] == last


def kill_all(demo: Demo, role: str, index: int = 0) -> None:
    """Kills all processes of a task at once, as `kill -9` of its container does."""
    for pid in demo.tasks(role, index):
        os.kill(pid, signal.SIGKILL)


def trained(demo: Demo, epoch: int, run: str = "fashion-mnist") -> Callable[[], bool]:
    return lambda: any(
        record.fields["epoch"] >= epoch and record.fields["epoch_end"]
        for record in demo.records("chief", event=Event.PROGRESS, run=run)
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("role", "index"),
    [
        ("chief", 0),
        ("ps", 0),
        ("worker", 1),
        ("evaluator", 0),
    ],
)
def test_it_goes_on_after_a_kill(demo: Demo, role: str, index: int) -> None:
    """No step is missing: every epoch ends at its last step, in this attempt or the one before."""
    settings = ["spec.program.parameters.epochs=4", "spec.program.parameters.stepsPerEpoch=40"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    started = demo.launcher("submit", str(EXAMPLE), "--backend", "local", "--detach", *overrides)
    assert started.returncode == 0, started.stderr
    eventually(trained(demo, 1), "the first epoch's end")
    kill_all(demo, role, index)
    done = demo.launcher("wait", "fashion-mnist")
    assert done.returncode == 0, done.stdout + done.stderr
    restarts = re.search(rf"^{role} +0 +\d/\d +\d+ +(\d+) +localhost +Complete *$", done.stdout, re.MULTILINE)
    assert restarts, done.stdout
    assert int(restarts[1]) >= 1
    for each, count in {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}.items():
        row = rf"^{each} +0 +{count}/{count} +\d+ +\d+ +localhost +Complete *$"
        assert re.search(row, done.stdout, re.MULTILINE), done.stdout
    if role != "evaluator":
        each_epoch_was_evaluated_once(demo, last=4)
    ends = [record for record in demo.records("chief", event=Event.PROGRESS) if record.fields["epoch_end"]]
    assert {record.fields["epoch"] for record in ends} == {1, 2, 3, 4}
    assert all(record.fields["step"] == 40 for record in ends)
    assert demo.tasks() == []
    assert demo.launcher("report", "fashion-mnist", "-o", "run.html").returncode == 0
    page = (demo.state / "run.html").read_text()
    name = f"{role} {index}" if role == "worker" else role
    assert re.search(r"<b>[^<]+</b> training", page)
    if role in ("chief", "ps"):
        assert re.search(rf"<b>[^<]+</b> lost to 1 restart of {name} \(killed\)", page), page
    else:
        assert re.search(rf"Besides, {name} ended after [\d.]+ s \(killed\)", page), page


@pytest.mark.thorough
def test_the_starter_trains_also_when_its_chief_is_killed(demo: Demo) -> None:
    """The files that `launcher init` writes can be trained."""
    assert demo.launcher("init", "first").returncode == 0
    started = demo.launcher("submit", "first/cluster.yaml", "--backend", "local", "--detach")
    assert started.returncode == 0, started.stdout + started.stderr
    eventually(trained(demo, 1, "my-run"), "the first epoch's end")
    kill_all(demo, "chief")
    done = demo.launcher("wait", "my-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) >= 0.70
    assert re.search(r"^chief +0 +1/1 +\d+ +[1-9]\d* +localhost +Complete *$", done.stdout, re.MULTILINE), (
        done.stdout
    )
    for role, count in {"worker": 2, "ps": 1, "evaluator": 1}.items():
        row = rf"^{role} +0 +{count}/{count} +\d+ +\d+ +localhost +Complete *$"
        assert re.search(row, done.stdout, re.MULTILINE), done.stdout
    ends = [record.fields for record in demo.records("chief", event=Event.PROGRESS, run="my-run")]
    assert {end["epoch"]: end["step"] for end in ends if end["epoch_end"]} == {1: 100, 2: 100, 3: 100}
    each_epoch_was_evaluated_once(demo, last=3, run="my-run")
    assert demo.tasks() == []
    assert demo.launcher("report", "my-run", "-o", "run.html").returncode == 0
    assert re.search(
        r"<b>[^<]+</b> lost to 1 restart of chief \(killed\)", (demo.state / "run.html").read_text()
    )
    listed = demo.launcher("list")
    assert re.search(r"^default +my-run +Succeeded ", listed.stdout, re.MULTILINE), listed.stdout
    assert demo.launcher("delete", "my-run").returncode == 0
    assert demo.launcher("status", "my-run", "--backend", "local").returncode == 3
