"""Every example trains to its end as real processes, with a few steps only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.machine import linux_only
from tests.paths import ROOT
from worker.contract.exit_codes import ExitCode

SECONDS = 280
"""Limit of a whole run."""
PARAMETERS = "spec.program.parameters"
SHORT = (f"{PARAMETERS}.epochs=1", f"{PARAMETERS}.stepsPerEpoch=8")
LONGER = (f"{PARAMETERS}.epochs=1", f"{PARAMETERS}.stepsPerEpoch=40")
"""For an embedding, and for the model with batch normalization: after 8 steps the accuracy was from 0.13 to
0.47, after 40 steps from 0.60 to 0.71.
"""

pytestmark = linux_only

Launcher = Callable[..., subprocess.CompletedProcess[str]]

ROWS: list[tuple[str, tuple[str, ...]]] = [
    ("strategies/cluster-one-device.yaml", SHORT),
    ("strategies/cluster-one-device.yaml", (*SHORT, "spec.program.keras=3")),
    ("strategies/cluster-central-storage.yaml", SHORT),
    ("strategies/cluster-all-reduce.yaml", SHORT),
    (
        "strategies/cluster-all-reduce.yaml",
        (*SHORT, "spec.strategyOptions={crossDeviceOps: ReductionToOneDevice}"),
    ),
    ("strategies/cluster-all-reduce-workers.yaml", SHORT),
    ("strategies/cluster-multi-worker.yaml", SHORT),
    ("strategies/cluster-multi-worker.yaml", (*SHORT, "spec.worker.replicas=3")),
    ("parameter-server-fit/cluster.yaml", LONGER),
    (
        "parameter-server-coordinator/cluster.yaml",
        (f"{PARAMETERS}.epochs=2", f"{PARAMETERS}.stepsPerEpoch=40"),
    ),
    ("strategies/cluster-multi-worker-with-chief.yaml", (*SHORT, "spec.strategyOptions={autoShard: OFF}")),
    ("custom-loop/cluster-mirrored.yaml", SHORT),
    ("custom-loop/cluster-mirrored.yaml", (*SHORT, f"{PARAMETERS}.iteration=epoch", "spec.program.keras=3")),
    # An epoch is all of the data, and the tasks must know its size.
    ("custom-loop/cluster-multi-worker.yaml", (f"{PARAMETERS}.epochs=1",)),
    ("custom-loop/cluster-multi-worker.yaml", (*SHORT, "spec.worker.replicas=3")),
    ("custom-loop/cluster-multi-worker.yaml", (*SHORT, "spec.chief={}", "spec.program.keras=3")),
    ("every-method/cluster.yaml", SHORT),
]
"""Each row is a file under examples/, and the values for `--set` that make the run short."""


FIRST = ("strategies/cluster-multi-worker.yaml", SHORT)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """The command line with a state directory of its own; no process is left at the end."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "launcher", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    yield run
    for line in run("list").stdout.splitlines()[1:]:
        run("delete", line.split()[1])


def submit(launcher: Launcher, file: str, settings: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs the example to its end."""
    chosen = [word for setting in settings for word in ("--set", setting)]
    return launcher("submit", f"examples/{file}", "--backend", "local", *chosen)


def model_directory(output: str) -> Path:
    """Returns the path in the summary."""
    match = re.search(r"^model directory +(\S+)$", output, re.MULTILINE)
    assert match, output
    return Path(match[1])


def row(file: str, settings: tuple[str, ...]) -> Any:
    """Returns a test case. `make test` runs one, beside the demo and the starter; `make thorough` all."""
    marks = [] if (file, settings) == FIRST else [pytest.mark.thorough]
    return pytest.param(file, settings, id=" ".join((file, *settings[2:])), marks=marks)


@pytest.mark.parametrize(("file", "settings"), [row(*one) for one in ROWS])
def test_it_trains_to_the_end(launcher: Launcher, file: str, settings: tuple[str, ...]) -> None:
    done = submit(launcher, file, settings)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"^evaluation +accuracy ([\d.]+)", done.stdout, re.MULTILINE)
    assert accuracy, done.stdout
    assert float(accuracy[1]) > 0.15, "better than guessing among ten"


@pytest.mark.thorough
def test_mirrored_fit_is_scored_again_from_what_it_wrote(launcher: Launcher) -> None:
    """It is scored from the latest checkpoint, and from the SavedModel with and without a strategy."""
    settings = (f"{PARAMETERS}.epochs=4", f"{PARAMETERS}.stepsPerEpoch=8")
    done = submit(launcher, "mirrored-fit/cluster.yaml", settings)
    assert done.returncode == 0, done.stdout + done.stderr
    directory = model_directory(done.stdout)
    assert sorted(path.stem for path in directory.glob("weights/ckpt_*.index")) == [
        f"ckpt_{epoch}" for epoch in (1, 2, 3, 4)
    ]
    assert list((directory / "logs" / "train").glob("events.*"))
    logs = launcher("logs", "mirrored-fit").stdout
    rates = re.findall(r"Learning rate for epoch (\d) is (\S+)", logs)
    assert rates == [("1", "0.001"), ("2", "0.001"), ("3", "0.001"), ("4", "0.0001")]

    script = ROOT / "examples" / "mirrored-fit" / "evaluate.py"
    scored = subprocess.run(
        [sys.executable, str(script), str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert scored.returncode == 0, scored.stderr
    scores = re.findall(r"^(.+): accuracy ([\d.]+)$", scored.stdout, re.MULTILINE)
    assert [what for what, _ in scores] == [
        "checkpoint ckpt_4",
        "SavedModel without a strategy",
        "SavedModel on 2 replicas",
    ]
    trained = re.search(r"^evaluation +accuracy ([\d.]+)", done.stdout, re.MULTILINE)
    assert trained
    assert {accuracy for _, accuracy in scores} == {trained[1]}


@pytest.mark.by_day
@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("strategies/cluster-tpu.yaml", (), "spec.strategy: TPU: no TPU was found in this pod"),
        (
            "strategies/cluster-all-reduce.yaml",
            ("spec.strategyOptions.crossDeviceOps=Nccl",),
            "spec.strategyOptions.crossDeviceOps: Nccl sums over GPUs, and there is none here",
        ),
    ],
)
def test_what_this_machine_lacks_is_said(
    launcher: Launcher, file: str, settings: tuple[str, ...], message: str
) -> None:
    done = submit(launcher, file, settings)
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in done.stdout
    assert f"ended with exit code {int(ExitCode.PROGRAM_ERROR)}" in done.stdout
    assert "Traceback" not in done.stdout
