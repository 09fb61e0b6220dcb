"""The runs of `benchmarks.chaos`: strategies and styles of training, victims, signals and times."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import clusters

EPOCHS, STEPS = 4, 40
DUE = EPOCHS * STEPS
PACKED = 2
IN_FLIGHT = 2 * PACKED
"""Steps that two workers may have in flight."""
STEP_MICROSECONDS = 25_000
BATCH = 8
EXAMPLES = 1_604
"""Of a row with data workers: the last batch of a pass is smaller."""
HELD = 10 * BATCH
"""Examples that a data worker may have taken and not returned: batches that it has ready or prepares."""
SIGNALS = {
    "kill": signal.SIGKILL,
    "crash": signal.SIGKILL,
    "term": signal.SIGTERM,
    "stop": signal.SIGSTOP,
}


@dataclass(frozen=True)
class Row:
    """A strategy with a style of training. The first role is the primary. In a row with `most` tasks these
    come and go: there may be 1 to `most` of them, which are workers or, in the style Data, data workers.
    """

    strategy: str
    style: str
    replicas: Mapping[str, int]
    most: int = 0

    @property
    def served(self) -> bool:
        """Returns whether it has data workers."""
        return self.style == "data"

    @property
    def name(self) -> str:
        """Returns the name in the table and on the command line."""
        return f"{self.strategy} {'elastic' if self.most and not self.served else self.style}"

    @property
    def victims(self) -> list[tuple[str, int]]:
        """Returns role and index of the tasks that may get the signal: the first and the last of a role."""
        return sorted(
            {(role, index) for role, count in self.replicas.items() for index in (0, count - 1)}, key=str
        )


_SERVERS = {"chief": 1, "worker": 2, "ps": 1}
ROWS = [
    Row("OneDevice", "fit", {"chief": 1, "evaluator": 1}),
    Row("Mirrored", "loop", {"chief": 1}),
    Row("CentralStorage", "loop", {"chief": 1}),
    Row("MultiWorkerMirrored", "fit", {"worker": 2}),
    Row("MultiWorkerMirrored", "loop", {"worker": 2}),
    Row("ParameterServer", "fit", {**_SERVERS, "evaluator": 1}),
    Row("ParameterServer", "loop", _SERVERS),
    Row("ParameterServer", "loop", _SERVERS, most=4),
    Row("MultiWorkerMirrored", "loop", {"chief": 1, "worker": 2}, most=3),
    Row("OneDevice", "data", {"chief": 1}, most=4),
]
COME_AND_GO = "come and go"
_COME_AND_GO_SECONDS = 30.0
"""For each run of the other rows: ten minutes beside 20 runs."""


@dataclass(frozen=True)
class Case:
    """One run: its victim, the signal, and the time after the first step. With the signal COME_AND_GO it is
    the time for which the workers do.
    """

    row: Row
    role: str
    index: int
    signal: str
    seconds: float

    @property
    def victim(self) -> str:
        """Returns the victim's name in the table."""
        if self.row.most:
            return "data service" if self.row.served else "workers"
        return f"{self.role} {self.index}" if self.row.replicas[self.role] > 1 else self.role


def cases(row: Row, runs: int, seed: int) -> list[Case]:
    """Returns `runs` cases, the same for the same seed; every victim gets every signal in turn."""
    if row.most:
        role = "data-worker" if row.served else "worker"
        return [Case(row, role, 0, COME_AND_GO, _COME_AND_GO_SECONDS * runs)]
    chance = random.Random(f"{seed} {row.name}")
    pairs = [(role, index, name) for role, index in row.victims for name in SIGNALS]
    chance.shuffle(pairs)
    # Two workers share the steps of a ParameterServer run.
    training = EPOCHS * STEPS * STEP_MICROSECONDS / 1e6 / (2 if row.strategy == "ParameterServer" else 1)
    return [Case(row, *pairs[run % len(pairs)], chance.uniform(0.0, training)) for run in range(runs)]


def epochs_of(case: Case) -> int:
    """Returns the number of epochs. A collective whose workers come and go has short ones: when one is lost,
    it goes back to the end of the last.
    """
    if case.row.most and case.row.strategy == "MultiWorkerMirrored":
        return round(case.seconds * 1e6 / STEP_MICROSECONDS / STEPS)
    return EPOCHS


def steps_of(case: Case) -> int:
    """Returns the number of steps in an epoch; where workers come and go, enough for `most` all the time."""
    if not case.row.most or epochs_of(case) != EPOCHS:
        return STEPS
    # A data worker is hit more often than a worker, and waits before it starts again.
    share = 0.5 if case.row.served else 1.0
    return round(share * case.seconds * 1e6 / STEP_MICROSECONDS * case.row.most / EPOCHS)


def cluster_file(case: Case, directory: Path) -> Path:
    """Writes the run's cluster.yaml. Its modelDir is `directory`/model."""
    row = case.row
    roles = {"worker": {"minReplicas": 1, "maxReplicas": row.most}} if row.most and not row.served else {}
    spec: dict[str, Any] = {
        "program": {
            "entrypoint": f"chaos_program:{row.style.capitalize()}",
            "parameters": {
                "epochs": epochs_of(case),
                "stepsPerEpoch": steps_of(case),
                "globalBatchSize": BATCH,
                "stepsPerExecution": PACKED,
                "stepMicroseconds": STEP_MICROSECONDS,
                "examples": EXAMPLES,
            },
        },
        "runPolicy": {
            "backoffLimit": 5,
            "startingDeadlineSeconds": 90,
            "stallSeconds": 15,
            "chiefLostSeconds": 90,
        },
    }
    if row.served:
        spec["dataService"] = {"workers": 2, **clusters.model_volume(directory)}
        # The training waits while the dispatcher is away: a Job waits 10, 20, 40 s before it tries again.
        spec["runPolicy"] |= {"backoffLimit": 1_000, "stallSeconds": 150}
    program = clusters.PROGRAMS / "chaos_program.py"
    return clusters.write(directory, "chaos", row.strategy, row.replicas, [program], spec, roles)
