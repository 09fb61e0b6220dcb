"""`make test-gpu` itself, on logical CPUs in a GPU's place, and its parsers by what nvidia-smi prints."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu import checks
from tests.gpu.__main__ import run, shown
from tests.gpu.machine import Machine, parse
from tests.worker.cluster import ROOT

CPU = Machine("CPU")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "NVIDIA H100 80GB HBM3, 580.159.04, 81559\n",
            Machine("GPU", "NVIDIA H100 80GB HBM3, driver 580.159.04", 1, 81559),
        ),
        (
            "Tesla T4, 535.104.05, 15360\nTesla T4, 535.104.05, 15109\n",
            Machine("GPU", "Tesla T4, driver 535.104.05", 2, 15109),
        ),
        ("No devices were found\n", None),
        ("Failed to initialize NVML: Unknown Error\n", None),
        ("", None),
    ],
)
def test_the_machine_by_nvidia_smi(output: str, expected: Machine | None) -> None:
    assert parse(output) == expected


def test_devices_of_one_gpu_and_of_several() -> None:
    one, four = Machine("GPU", "", 1, 81559), Machine("GPU", "", 4, 81559)
    assert one.config("Mirrored", {"chief": 1}, 2) == {
        "strategy_options": {"gpuMemoryMB": 2048, "logicalGpus": 2},
        "gpus": {"chief": "nvidia.com/gpu: 1"},
    }
    assert four.config("Mirrored", {"chief": 1}, 2)["strategy_options"] == {"gpuMemoryMB": 2048}
    servers = {"chief": 1, "worker": 2, "ps": 1}
    assert one.config("ParameterServer", servers)["gpus"] == {"worker": "nvidia.com/gpu: 1"}

    def visible(machine: Machine, strategy: str, role: str, index: int, devices: int = 1) -> str:
        return machine.variables(strategy, role, index, devices)["CUDA_VISIBLE_DEVICES"]

    assert visible(four, "Mirrored", "chief", 0, 2) == "0,1"
    assert visible(one, "Mirrored", "chief", 0, 2) == "0"
    assert [visible(four, "MultiWorkerMirrored", "worker", index) for index in range(2)] == ["0", "1"]
    assert [visible(one, "MultiWorkerMirrored", "worker", index) for index in range(2)] == ["0", "0"]
    roles = (("chief", 0), ("worker", 1), ("ps", 0))
    assert [visible(four, "ParameterServer", *each) for each in roles] == ["-1", "1", "-1"]


def test_without_a_gpu_it_says_so_and_ends_well(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.gpu"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "skipped: no NVIDIA GPU here: nvidia-smi, which comes with the driver, is not on the PATH\n"
    )


def test_a_check_that_fails_or_comes_too_late_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(machine: Machine, folder: Path) -> str:
        raise AssertionError("a | b\nc")

    def hangs(machine: Machine, folder: Path) -> str:
        time.sleep(3.0)
        return ""

    made = (
        checks.Check("machine", "is there", lambda machine, folder: "1 CPU"),
        checks.Check("one", "fails", fails),
        checks.Check("two", "hangs", hangs),
        checks.Check("three", "needs a GPU", fails, kinds=("GPU",)),
        checks.Check("four", "has no time", hangs, alone=True),
    )
    monkeypatch.setattr("tests.gpu.__main__.CHECKS", made)
    rows = run(CPU, tmp_path, [], time.monotonic() + 1.0)
    assert [(row.check.part, row.outcome) for row in rows] == [
        ("machine", "ok"),
        ("one", "FAILED"),
        ("two", "not run"),
        ("three", "not run"),
        ("four", "not run"),
    ]
    assert "AssertionError: a / b c" in shown(rows)
    assert [row.check.part for row in run(CPU, tmp_path, ["one", "3"], time.monotonic() + 9.0)] == [
        "one",
        "two",
    ]


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["Mirrored-2", "MultiWorkerMirrored"])
def test_the_matrix_with_a_shape(tmp_path: Path, name: str) -> None:
    summary = checks.column(CPU, tmp_path, name, shapes=["functional"])
    assert summary.startswith("2 cells train, 0 refused as expected; at most")


@pytest.mark.thorough
@pytest.mark.parametrize("function", [checks.nccl_refused, checks.too_much, checks.starter])
def test_checks_of_one_run(tmp_path: Path, function: checks.Function) -> None:
    assert function(CPU, tmp_path)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("function", [checks.seen, checks.precision, checks.xla])
def test_checks_of_several_runs(tmp_path: Path, function: checks.Function) -> None:
    assert function(CPU, tmp_path)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_training_process_that_is_killed_goes_on(tmp_path: Path) -> None:
    assert checks.kills(CPU, tmp_path, times=2).endswith("s from a kill to the next step")


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("only", ["resnet", "transformer", "input"])
def test_the_benchmark(tmp_path: Path, only: str) -> None:
    summary = checks.speed(CPU, tmp_path, only, 3)
    assert summary.startswith(
        "of the time the device waits" if only == "input" else f"{only}, Keras 3, batch "
    )
