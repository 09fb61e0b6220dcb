"""What data workers make of a training that waits for its data.

A batch takes INPUT_MICROSECONDS of waiting, and a step STEP_MICROSECONDS, as if it ran on a device of its
own: so neither takes the other's cores. The limit is the same training without the wait for data. As soon as
the data workers suffice, two for each worker, it should have 0.9 of the limit; where the data are no
bottleneck, the way through data workers should leave 0.95 of the limit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import clusters, recording
from benchmarks.measuring import ROOT, table
from worker.contract.records import Progress, Record

INPUT_MICROSECONDS, STEP_MICROSECONDS = 20_000, 10_000
BATCH = 32
EPOCHS, EPOCH_SECONDS = 3, 4
"""The first epoch is not counted."""
WORKERS, DATA_WORKERS = (1, 2, 4), (0, 1, 2, 4, 8)
_RUN_SECONDS = 300
_WRITE = "import sys, pathlib, slow_input; slow_input.write(pathlib.Path(sys.argv[1]))"


def rate(workers: int, data_workers: int, input_microseconds: int, data: Path) -> float:
    """Returns the steps a second of all workers together."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        spec: dict[str, Any] = {
            "program": {
                "entrypoint": "slow_input:Program",
                "parameters": {
                    "epochs": EPOCHS,
                    "stepsPerEpoch": EPOCH_SECONDS * workers * 1_000_000 // STEP_MICROSECONDS,
                    "globalBatchSize": BATCH,
                    "inputMicroseconds": input_microseconds,
                    "stepMicroseconds": STEP_MICROSECONDS,
                    "dataDir": str(data),
                },
            },
        }
        if data_workers:
            spec["dataService"] = {"workers": data_workers, **clusters.model_volume(directory)}
        replicas = {"chief": 1, "worker": workers, "ps": 1}
        program = clusters.PROGRAMS / "slow_input.py"
        file = clusters.write(directory, "fed", "ParameterServer", replicas, [program], spec)
        environment = {**os.environ, "XDG_STATE_HOME": folder, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-m", "launcher", "submit", str(file), "--backend", "local"],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=_RUN_SECONDS,
        )
        log = directory / "tf-launcher" / "runs" / "default" / "fed" / "pods" / "fed-chief-0" / "log.0"
        return _rate(log.read_text())


def _rate(log: str) -> float:
    """Returns the steps a second between the end of the first epoch and that of the last."""
    records = [record for line in log.splitlines() if (record := Record.parse(line))]
    ends = [(record.time, content) for record in records if _ends(content := record.content)]
    (first, _), (last, progress) = ends[0], ends[-1]
    assert isinstance(progress, Progress)
    assert progress.steps is not None
    return progress.steps * (len(ends) - 1) / (last - first)


def _ends(content: object) -> bool:
    return isinstance(content, Progress) and content.epoch_end


def measure(rounds: int, data: Path) -> str:
    """Returns the table."""
    rows: list[Sequence[str]] = []
    for workers in WORKERS:
        limits, through = [], []
        ratios: dict[int, list[float]] = {number: [] for number in DATA_WORKERS}
        for _ in range(rounds):
            limits.append(rate(workers, 0, 0, data))
            through.append(rate(workers, workers, 0, data) / limits[-1])
            for number in DATA_WORKERS:
                ratios[number].append(rate(workers, number, INPUT_MICROSECONDS, data) / limits[-1])
            summary = ", ".join(f"{number}: {values[-1]:.2f}" for number, values in ratios.items())
            print(f"{workers} workers, {limits[-1]:.0f} steps/s; {summary}", file=sys.stderr)
        shown = [f"{statistics.median(values):.2f}" for values in (*ratios.values(), through)]
        rows.append([f"{workers}", f"{statistics.median(limits):.0f}", *shown])
    heads = ["workers", "limit, steps/s", *(f"{number} data workers" for number in DATA_WORKERS)]
    return table([*heads, "no wait for data, through data workers"], rows)


def main() -> None:
    """Measures and prints."""
    options = recording.parser("benchmarks.data_workers", str(__doc__), 1).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(clusters.PROGRAMS)}
        subprocess.run([sys.executable, "-c", _WRITE, folder], env=environment, check=True)
        ratio_table = measure(options.rounds, Path(folder))
    wait, step = INPUT_MICROSECONDS // 1000, STEP_MICROSECONDS // 1000
    text = (
        f"ParameterServer, medians of {options.rounds} rounds. A batch takes {wait} ms, a step {step} ms. "
        f"In parts of the limit:\n\n{ratio_table}"
    )
    recording.publish("data-workers", text, record=options.record)


if __name__ == "__main__":
    main()
