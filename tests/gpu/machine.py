"""What the checks run on: this machine's GPUs, or logical CPUs in their place, on which the checks themselves
are tried.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from worker.contract.strategies import STRATEGIES, Kind
from worker.supervisor import gpu_use

_SECONDS = 60.0
_PART_MB = 2048
"""Memory of a device in most checks. It is less where a GPU is small."""
_PARTS = 16
"""Devices that are there at once, at most, when checks run beside each other."""


@dataclass(frozen=True)
class Machine:
    """`kind` is GPU or CPU. `gpus` are those that nvidia-smi lists, `memory_mb` that of each, in MiB;
    `used_before_mb` of all of them together was in use before the checks.
    """

    kind: str
    name: str = ""
    gpus: int = 0
    memory_mb: int = 0
    used_before_mb: int = 0

    @property
    def part_mb(self) -> int:
        """Returns the memory of a device that is one of many."""
        return min(_PART_MB, self.memory_mb // _PARTS)

    def config(
        self, strategy: str, replicas: Mapping[str, int], devices: int = 1, memory_mb: int | None = None
    ) -> dict[str, Any]:
        """Returns fields of the configuration of a run, in which each task that computes has `devices`, with
        memory of `memory_mb`, 0 for no limit.
        """
        if self.kind == "CPU":
            return {"strategy_options": {"logicalCpus": devices} if devices > 1 else {}}
        options: dict[str, Any] = {}
        if memory_mb != 0:
            options["gpuMemoryMB"] = memory_mb or self.part_mb
        if devices > self.gpus:
            options["logicalGpus"] = devices
        computing = [role for role in replicas if self._computes(strategy, role)]
        # So a task that sees no GPU fails.
        return {"strategy_options": options, "gpus": dict.fromkeys(computing, "nvidia.com/gpu: 1")}

    def variables(self, strategy: str, role: str, index: int, devices: int = 1) -> dict[str, str]:
        """Returns the environment variables by which a task sees its GPUs, and no others."""
        if self.kind == "CPU" or not self._computes(strategy, role):
            return {"CUDA_VISIBLE_DEVICES": "-1"}
        wide = devices if devices <= self.gpus else 1
        seen = [str((index * wide + number) % self.gpus) for number in range(wide)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(seen)}

    def used_mb(self) -> int:
        """Returns the memory of all GPUs that is in use, by whatever process, in MiB."""
        use = gpu_use.parse(_query("utilization.gpu,memory.used,memory.total"))
        if use is None or not use.memory:
            raise AssertionError("nvidia-smi does not say how much memory is in use")
        return sum(use.memory)

    @staticmethod
    def _computes(strategy: str, role: str) -> bool:
        coordinates = STRATEGIES[strategy].kind is Kind.COORDINATED and role == "chief"
        return role in ("chief", "worker", "evaluator") and not coordinates


def gpus() -> Machine | str:
    """Returns this machine with its GPUs, or the reason why there are none."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA GPU here: nvidia-smi, which comes with the driver, is not on the PATH"
    try:
        output = _query("name,driver_version,memory.total")
    except (OSError, subprocess.SubprocessError) as error:
        return f"no NVIDIA GPU here: nvidia-smi does not answer ({error})"
    machine = parse(output)
    if machine is None:
        return f"no NVIDIA GPU here: nvidia-smi says {output.strip()!r}"
    return replace(machine, used_before_mb=machine.used_mb())


def parse(output: str) -> Machine | None:
    """Returns the machine of an output of nvidia-smi: name, driver and MiB of each GPU."""
    lines = [[field.strip() for field in line.split(",")] for line in output.splitlines()]
    known = [line for line in lines if len(line) == 3 and line[2].isdecimal()]
    if not known:
        return None
    name, driver, _ = known[0]
    return Machine("GPU", f"{name}, driver {driver}", len(known), min(int(line[2]) for line in known))


def _query(fields: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS).stdout
