"""`python -m tests.gpu`: what this machine's GPUs must show, in ten minutes, with a table at the end.

It needs TensorFlow with CUDA, tf_keras and nvidia-smi, and is skipped with the reason where there is no GPU.
--device CPU does the same with logical CPUs in a GPU's place, as far as that goes: so the checks themselves
are tried where there is none. The exit code is 1 where a check fails, or found no time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import table
from tests.gpu.checks import CHECKS, Check
from tests.gpu.machine import Machine, gpus
from worker.supervisor.orphans import adopt_orphans, end_children

_AT_ONCE = 8
"""Checks beside each other; each has a few processes, which wait for the device most of the time."""
_LONGEST = 160
"""Characters of a note in the table; the whole is printed above it."""


@dataclass(frozen=True)
class Row:
    """How a check ended: ok, FAILED or not run."""

    check: Check
    outcome: str
    seconds: float
    note: str


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("GPU", "CPU"), default="GPU", help="(%(default)s)")
    parser.add_argument("--only", default="", help="parts or numbers of checks, such as matrix,xla,11; all")
    parser.add_argument("--seconds", type=float, default=570.0, help="the most that it takes (%(default)s)")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, help="checks (%(default)s)")
    parser.add_argument("--folder", type=Path, help="for logs and models; a new one is the default")
    options = parser.parse_args()
    machine = gpus() if options.device == "GPU" else Machine("CPU")
    if isinstance(machine, str):
        print(f"skipped: {machine}")
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="test-gpu-"))
    print(f"on {machine.gpus or ''} {machine.name or machine.kind}; logs and models in {folder}", flush=True)
    _prepare(machine)
    chosen = {word for word in options.only.split(",") if word}
    rows = run(machine, folder, chosen, time.monotonic() + options.seconds, options.at_once)
    # A check that came too late has processes, and a thread that waits for them.
    end_children()
    print("\n" + shown(rows), flush=True)
    os._exit(0 if all(row.outcome == "ok" or not _may(row.check, machine) for row in rows) else 1)


def _prepare(machine: Machine) -> None:
    """Sets what all processes of the checks have in common."""
    adopt_orphans()
    # Each task a Python of its own, as in a pod.
    os.environ["LAUNCHER_TEST_FRESH"] = "1"
    # Else sums of float32 have 10 bits, and no two orders of them are alike.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    # What is compiled for the GPU is kept, for all processes.
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 << 30))
    if machine.kind == "CPU":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def run(
    machine: Machine, folder: Path, chosen: Iterable[str], deadline: float, at_once: int = _AT_ONCE
) -> list[Row]:
    """Runs the chosen checks, all if there is none: those that need the device for themselves one after the
    other, the first of them before all others, and the rest side by side.
    """
    names = set(chosen)
    rows: dict[int, Row] = {}

    def wanted(number: int) -> bool:
        check = CHECKS[number - 1]
        return not names or bool(names & {check.part, str(number)})

    def attempt(number: int) -> Row:
        check, began = CHECKS[number - 1], time.monotonic()
        check_folder = folder / f"{number:02}-{check.part}"
        check_folder.mkdir(parents=True, exist_ok=True)
        try:
            note = check.function(machine, folder if check.part == "matrix" else check_folder)
            outcome = "ok"
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is this check's row
            outcome, note = "FAILED", f"{type(error).__name__}: {error}"
        taken = time.monotonic() - began
        print(f"{number:2} {outcome} {check.part}, {check.what} ({taken:.0f} s): {note}", flush=True)
        return Row(check, outcome, taken, note)

    def collect(running: Mapping[int, Future[Row]]) -> None:
        for number, future in running.items():
            try:
                rows[number] = future.result(max(0.0, deadline - time.monotonic()))
            except Late:
                future.cancel()
                rows[number] = Row(CHECKS[number - 1], "not run", 0.0, "the time is over")

    numbers = [number for number in range(1, len(CHECKS) + 1) if wanted(number)]
    for number in numbers:
        if not _may(CHECKS[number - 1], machine):
            rows[number] = Row(CHECKS[number - 1], "not run", 0.0, f"needs a {CHECKS[number - 1].kinds[0]}")
    left = [number for number in numbers if number not in rows]
    first = [number for number in left if number == 1]
    beside = [number for number in left if not CHECKS[number - 1].alone]
    alone = [number for number in left if CHECKS[number - 1].alone and number not in first]
    pool = ThreadPoolExecutor(at_once)
    for group in (first, beside, *([number] for number in alone)):
        collect({number: pool.submit(attempt, number) for number in group})
        if group == first and any(rows[number].outcome != "ok" for number in first):
            for number in (*beside, *alone):
                rows[number] = Row(CHECKS[number - 1], "not run", 0.0, "the first check failed")
            break
    pool.shutdown(wait=False, cancel_futures=True)
    return [rows[number] for number in sorted(rows)]


def _may(check: Check, machine: Machine) -> bool:
    return machine.kind in check.kinds


def shown(rows: Iterable[Row]) -> str:
    """Returns the table."""
    cells = []
    for row in rows:
        note = " ".join(row.note.replace("|", "/").split())
        note = note if len(note) <= _LONGEST else f"{note[: _LONGEST - 3]}..."
        cells.append([row.check.part, row.check.what, row.outcome, f"{row.seconds:.0f}", note])
    heads = ["part", "check", "outcome", "s", "what was found"]
    return table(heads, cells)


if __name__ == "__main__":
    sys.exit(main())
