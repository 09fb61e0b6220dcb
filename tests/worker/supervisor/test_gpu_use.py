"""What the supervisor records of GPUs, by outputs of nvidia-smi in the forms that its drivers print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.conftest import MakeCluster
from worker.contract.records import Event, GpuUse
from worker.supervisor import gpu_use


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("87, 40213, 81559\n", GpuUse([87], [40213], [81559])),
        ("0, 4, 81559\n100, 79880, 81559\n", GpuUse([0, 100], [4, 79880], [81559, 81559])),
        ("[N/A], 13, 9856\n", GpuUse([], [13], [9856])),
        ("[Not Supported], 312, 4041\r\n", GpuUse([], [312], [4041])),
        ("[GPU is lost], [GPU is lost], [GPU is lost]\n", None),
        ("[N/A], [Insufficient Permissions], [Insufficient Permissions]\n", None),
        ("No devices were found\n", None),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n\n", None),
        ("", None),
    ],
)
def test_the_numbers_that_there_are(output: str, expected: GpuUse | None) -> None:
    assert gpu_use.parse(output) == expected


@pytest.mark.by_day(runtime=("one",))
@pytest.mark.parametrize(
    ("visible", "asked"), [(None, ""), ("1", " --id=1"), ("-1", None)], ids=["all", "one", "none"]
)
def test_a_task_records_those_that_it_sees(
    make_cluster: MakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    asked: str | None,
) -> None:
    """nvidia-smi is a script here, which keeps what it was asked for: the test machine has no GPU."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho "87, 40213, 81559"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    chief = make_cluster(strategy="OneDevice", replicas={"chief": 1}, parameters={"epochs": 1}).start("chief")
    assert chief.ended() == 0
    measurements = [record.content for record in chief.records(Event.GPU_USE)]
    if asked is None:
        assert not measurements
        return
    assert measurements[0] == GpuUse((87,), (40213,), (81559,))
    query = "--query-gpu=utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits"
    assert (tmp_path / "asked").read_text().splitlines()[0] == query + asked
