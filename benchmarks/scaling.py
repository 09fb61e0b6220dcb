"""How a training grows with its workers: against one process, and to where the coordinator has no time left.

Each worker gets a batch every STEP_MICROSECONDS, whatever the processor has to do, as if its steps ran on a
device of its own: so workers do not take each other's cores. One process is OneDevice. Of the strategies
whose replicas step together, a step of N workers is N batches; of ParameterServer, each worker takes its own
steps.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import recording
from benchmarks.contestants import Contestant, Training, Way
from benchmarks.measuring import table

STEP_MICROSECONDS = 20_000
EPOCH_SECONDS = 4
"""Of an epoch, where nothing but the wait for data takes time."""
ROUNDS = 3
BATCH = 32
WORKERS = (1, 2, 4)
MANY_WORKERS = (1, 2, 4, 8, 16)
ONE_PROCESS = "OneDevice"


@dataclass(frozen=True)
class Scaled:
    """Batches a second, and milliseconds of processor time for a batch by role."""

    batches: float
    processor: Mapping[str, float]


def measure(strategy: str, workers: int, packed: int | str, rounds: int) -> Scaled:
    """Medians of `rounds` epochs, after one that is not counted."""
    together = 1 if strategy in ("ParameterServer", ONE_PROCESS) else workers
    abreast = workers if strategy == "ParameterServer" else 1
    steps = EPOCH_SECONDS * abreast * 1_000_000 // STEP_MICROSECONDS
    replicas = {
        "ParameterServer": {"chief": 1, "worker": workers, "ps": 1},
        "MultiWorkerMirrored": {"worker": workers},
    }.get(strategy, {"chief": 1})
    training = Training(
        strategy,
        "loop",
        "device:Program",
        replicas,
        steps,
        {"logicalCpus": workers} if strategy == "Mirrored" else {},
        {"stepMicroseconds": STEP_MICROSECONDS, "globalBatchSize": BATCH * together},
    )
    with (
        tempfile.TemporaryDirectory() as directory,
        Contestant(training, Way(packed, runtime=True), rounds + 1, Path(directory)) as contestant,
    ):
        contestant.turn()
        before = contestant.processor_seconds()
        rates = [contestant.turn() for _ in range(rounds)]
        after = contestant.processor_seconds()
        contestant.finish()
    done = rounds * steps * together
    processor = {role: 1000 * (after[role] - before[role]) / done for role in after}
    measured = Scaled(statistics.median(rates) * together, processor)
    print(
        f"{strategy}, {workers} workers, {packed} a call: {measured.batches:.0f} batches a second",
        file=sys.stderr,
    )
    return measured


def scaling(rounds: int) -> str:
    """The table of all strategies."""
    rows = []
    one = measure(ONE_PROCESS, 1, 1, rounds).batches
    for strategy in ("Mirrored", "MultiWorkerMirrored", "ParameterServer"):
        for workers in WORKERS:
            batches = measure(strategy, workers, 1, rounds).batches
            rows.append(
                (
                    strategy,
                    f"{workers}",
                    f"{batches:.0f}",
                    f"{batches / one:.2f}",
                    f"{batches / one / workers:.2f}",
                )
            )
    heads = ("strategy", "workers", "batches/s", "to one process", "of the workers' sum")
    return f"One process: {one:.0f} batches a second.\n\n{table(heads, rows)}"


def coordinator(rounds: int) -> str:
    """The table of ParameterServer's coordinator."""
    rows: list[Sequence[str]] = []
    for packed in (1, "auto"):
        for workers in MANY_WORKERS:
            taken = measure("ParameterServer", workers, packed, rounds)
            due = workers * 1_000_000 / STEP_MICROSECONDS
            chief = taken.processor["chief"]
            others = sum(taken.processor.values()) - chief
            rows.append(
                (
                    str(packed),
                    f"{workers}",
                    f"{taken.batches:.0f}",
                    f"{taken.batches / due:.2f}",
                    f"{chief:.2f}",
                    f"{others:.2f}",
                    f"{taken.batches * chief / 10:.0f}",
                )
            )
    heads = (
        "steps a call",
        "workers",
        "steps/s",
        "of the most there can be",
        "chief's CPU ms a step",
        "the others' together",
        "chief's % of a core",
    )
    return table(heads, rows)


def main() -> None:
    """Measures and prints."""
    options = recording.parser("benchmarks.scaling", str(__doc__), ROUNDS).parse_args()
    text = (
        f"Medians of {options.rounds} epochs; a batch comes every {STEP_MICROSECONDS / 1000:.0f} ms.\n\n"
        f"{scaling(options.rounds)}\n\nThe coordinator of ParameterServer:\n\n{coordinator(options.rounds)}"
    )
    recording.publish("scaling", text, record=options.record)


if __name__ == "__main__":
    main()
