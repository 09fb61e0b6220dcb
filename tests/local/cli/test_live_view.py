"""The live view of a run whose tasks write what the runtime writes, in three terminals at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from tests.local.machine import eventually, linux_only
from tests.paths import ROOT
from tests.terminal import SECONDS, Terminal, terminal

LAUNCHER = [sys.executable, "-m", "launcher"]
WIDTHS = (40, 80, 120)
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

pytestmark = linux_only


TASK = """\
import sys, time
from worker.contract.records import Doing, Evaluation, Progress, Training, emit

role, epochs, steps = sys.argv[1], 6, 300
name = f"viewed-{role}-0"
emit(name, Doing("importing TensorFlow"))
time.sleep(4)
if role == "chief":
    emit(name, Doing("tracing the first step"))
    time.sleep(0.5)
    emit(name, Training(epochs, steps, 0))
    for epoch in range(1, epochs + 1):
        for step in range(50, steps + 1, 50):
            time.sleep(0.1)
            emit(name, Progress(epoch, epochs, step, steps, 500.0, 1 / epoch, {}, step == steps))
    time.sleep(0.5)
elif role == "evaluator":
    emit(name, Doing("waiting for a checkpoint"))
    for epoch in range(1, epochs + 1):
        time.sleep(0.6)
        emit(name, Evaluation(f"ckpt-{epoch}", epoch, {"accuracy": 0.8 + epoch / 100}))
else:
    time.sleep(60)
"""
CLUSTER = {
    "apiVersion": "launcher/v1alpha1",
    "kind": "TrainingCluster",
    "metadata": {"name": "viewed"},
    "spec": {
        "strategy": "ParameterServer",
        "image": "example.com/any",
        **{
            role: {"command": ["python", "-c", TASK, role], **({"replicas": 2} if role == "worker" else {})}
            for role in ("chief", "worker", "ps", "evaluator")
        },
    },
}


class Viewer(threading.Thread):
    """Reads a terminal to the end, and keeps each picture."""

    def __init__(self, seen: Terminal) -> None:
        super().__init__(daemon=True)
        self.terminal = seen
        self.pictures: list[list[str]] = []
        self.start()

    def run(self) -> None:
        self.pictures.extend(self.terminal.pictures())

    def moving(self) -> list[list[str]]:
        """Returns the redrawn lines of each picture, from the spinner's on."""
        redrawn = []
        for lines in self.pictures:
            first = [number for number, line in enumerate(lines) if line[:1] in FRAMES and line[:1]]
            if first:
                redrawn.append(lines[first[0] :])
        return redrawn


@pytest.fixture(scope="module")
def viewers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Viewer]:
    state = tmp_path_factory.mktemp("view")
    environment = {"XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT)}
    (state / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    submit = [*LAUNCHER, "submit", str(state / "cluster.yaml"), "--backend", "local"]
    wait = [*LAUNCHER, "wait", "viewed"]
    started = state / "tf-launcher" / "runs" / "default" / "viewed" / "state.json"
    with terminal(submit, 80, environment=environment) as middle:
        by_width = {80: Viewer(middle)}
        eventually(started.exists, "the run starts")
        with (
            terminal(wait, 40, environment=environment) as narrow,
            terminal(wait, 120, environment=environment) as wide,
        ):
            by_width |= {40: Viewer(narrow), 120: Viewer(wide)}
            for viewer in by_width.values():
                viewer.join(SECONDS)
    return by_width


@pytest.mark.parametrize("width", WIDTHS)
def test_it_moves_and_says_what_the_tasks_do(viewers: dict[int, Viewer], width: int) -> None:
    moving = viewers[width].moving()
    importing = [lines for lines in moving if any("importing TensorFlow" in line for line in lines)]
    assert len({lines[0][0] for lines in importing}) > 3, "the spinner turns while nothing happens"
    assert any("tracing the first step" in line for lines in moving for line in lines)
    assert any(line.startswith("evaluator") and "checkpoint" in line for lines in moving for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_one_bar_for_the_whole_run_and_evaluations_in_place(viewers: dict[int, Viewer], width: int) -> None:
    moving = viewers[width].moving()
    bars = [[line for line in lines if "━" in line] for lines in moving]
    assert max(map(len, bars)) == 1
    shares = [int(match[1]) for line in bars if line and (match := re.search(r"(\d+)%", line[0]))]
    assert shares == sorted(shares)
    assert shares[-1] > 50
    assert any(" ETA " in line[0] for line in bars if line)
    texts = [" ".join(lines) for lines in moving]
    # Which epochs are seen depends on how busy the machine is.
    assert any(re.search(r"epoch \d/6, step ", text) for text in texts)
    assert any(re.search(r"evaluation after epoch \d: accuracy 0\.", text) for text in texts)
    epoch_lines = [line for line in viewers[width].terminal.lines if "epoch" in line]
    assert not any(re.search(r"evaluation after|epoch \d/6, step", line) for line in epoch_lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_debris_is_left(viewers: dict[int, Viewer], width: int) -> None:
    for lines in viewers[width].pictures:
        assert sum(line.startswith("ROLE") for line in lines) <= 1
    last = viewers[width].terminal.lines
    assert viewers[width].terminal.process.returncode == 0
    assert not any("━" in line or line[:1] in FRAMES for line in last if line)
    at = next(number for number, line in enumerate(last) if "has succeeded after" in line)
    assert not any(line.startswith("ROLE") for line in last[:at])
    table = next(number for number, line in enumerate(last) if line.startswith("ROLE"))
    assert [line.split()[0] for line in last[table + 1 : table + 5]] == ["chief", "worker", "ps", "evaluator"]


def test_a_narrow_terminal_drops_columns_and_the_node_first(viewers: dict[int, Viewer]) -> None:
    headings = {}
    for width, viewer in viewers.items():
        heading_lines = {line for lines in viewer.moving() for line in lines if line.startswith("ROLE")}
        headings[width] = max(heading_lines, key=len).split()
    assert headings[120] == ["ROLE", "READY", "SUCCEEDED", "FAILED", "RESTARTS", "NODE", "STATE"]
    assert headings[80] == ["ROLE", "READY", "SUCCEEDED", "FAILED", "RESTARTS", "STATE"]
    assert headings[40] == ["ROLE", "STATE"]


FAILS = """\
import time
from worker.contract.records import Failed, emit

time.sleep(1)
emit("failing-chief-0", Failed("ValueError: no data", "", 70))
print("a line of " + "x" * 200)
time.sleep(3)
raise SystemExit(70)
"""
SPEC = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: failing}
spec:
  strategy: OneDevice
  image: example.com/any
  chief: {command: [python, -c, PROGRAM]}
"""


def test_a_failure_is_red(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    spec = yaml.safe_load(SPEC)
    spec["spec"]["chief"]["command"] = ["python", "-c", FAILS]
    spec["spec"]["runPolicy"] = {"backoffLimit": 0}
    path.write_text(yaml.safe_dump(spec))
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    with terminal([*LAUNCHER, "submit", str(path), "--backend", "local"], 80, 50, environment) as seen:
        seen.until(lambda lines: any("failed: ValueError: no data" in line for line in lines))
        assert seen.colour("failed: ValueError") == "red"
        lines = seen.to_the_end()
        assert seen.process.returncode == 1
        end = "\n".join(lines).partition("has failed after")[2]
        assert end.index("ValueError: no data") < end.index("ROLE")
        assert seen.colour("chief ended with exit code 70") == "red"


def headings(lines: list[str]) -> list[bool]:
    """Returns for each table whether it has all columns."""
    return ["SUCCEEDED" in line for line in lines if line.startswith("ROLE")]


def test_a_terminal_that_is_made_narrower_and_wider_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    spec = yaml.safe_load(SPEC)
    # It ends when the test says so.
    end = tmp_path / "end"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.1)"
    spec["spec"]["chief"]["command"] = ["python", "-c", waits]
    path.write_text(yaml.safe_dump(spec))
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    with terminal([*LAUNCHER, "submit", str(path), "--backend", "local"], 100, 50, environment) as seen:
        for columns, wide in ((100, True), (45, False), (100, True)):
            seen.resize(columns)
            seen.until(lambda lines, wide=wide: headings(lines) == [wide])  # type: ignore[misc]
        end.touch()
        lines = seen.to_the_end()
        assert seen.process.returncode == 0
        assert [line.split()[0] for line in lines if line.startswith(("ROLE", "chief "))] == ["ROLE", "chief"]


def test_a_pipe_gets_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    spec = yaml.safe_load(SPEC)
    long = "a-node-of-" + "x" * 90
    spec["spec"]["chief"]["command"] = ["python", "-c", f"print('{long} ' * 3); raise SystemExit(3)"]
    spec["spec"]["runPolicy"] = {"backoffLimit": 0}
    path.write_text(yaml.safe_dump(spec))
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "40"}
    done = subprocess.run(
        [*LAUNCHER, "submit", str(path), "--backend", "local"],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 1
    assert f"  {long} {long} {long}" in done.stdout.splitlines()
    headings = next(line for line in done.stdout.splitlines() if line.startswith("ROLE"))
    assert headings.split()[-2:] == ["NODE", "STATE"]
    assert "\x1b" not in done.stdout
