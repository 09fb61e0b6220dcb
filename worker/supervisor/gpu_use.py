"""What the GPUs do while a task runs, by nvidia-smi: it is where the driver is, and needs no TensorFlow."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable

from worker.contract.records import GpuUse

_INTERVAL_SECONDS = 10.0
_LIMIT_SECONDS = 20.0
"""A driver that is not loaded between two calls needs seconds for one."""
_QUERY = ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


def follow(say: Callable[[GpuUse], None]) -> None:
    """Has `say` get what nvidia-smi measures, from now on; nothing where it is not, or the task sees no GPU.

    It starts a thread.
    """
    command, visible = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if command is None or visible in ("", "-1"):
        return
    chosen = () if visible is None else (f"--id={visible}",)

    def measure() -> None:
        while True:
            began = time.monotonic()
            use = _measured([command, *_QUERY, *chosen])
            if use is not None:
                say(use)
            time.sleep(max(0.0, began + _INTERVAL_SECONDS - time.monotonic()))

    threading.Thread(target=measure, name="gpu-use", daemon=True).start()


def _measured(command: list[str]) -> GpuUse | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return parse(done.stdout)


def parse(output: str) -> GpuUse | None:
    """Returns what the output of `_QUERY` says, a line for each GPU; None where it has no number, as in the
    messages of a driver that does not answer. Parts of a GPU (MIG) have no use: it prints `[N/A]`.
    """
    lines = [[field.strip() for field in line.split(",")] for line in output.splitlines()]
    columns = zip(*(line for line in lines if len(line) == 3))
    numbers = [[int(field) for field in column if field.isdecimal()] for column in columns]
    return GpuUse(*numbers) if any(numbers) else None
