"""Kills tasks at random moments in an epoch that never ends, and reports the work that this costs.

One run of each strategy trains for so many minutes on this machine. A kill (SIGKILL) hits the training
process of a random task, which is started again in its pod; every eighth its whole pod, which its Job
replaces. Every fifth comes before the run has recovered from the one before. At the end the run is
suspended, and the weights of its checkpoint must have counted each example as often as its steps say.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import recording
from benchmarks.measuring import ROOT, table
from benchmarks.recovery import until
from benchmarks.recovery_runs import Shape, Submitted, Task

SHAPES = [
    Shape("Mirrored", {"chief": 1}, [], in_place=True),
    Shape("MultiWorkerMirrored", {"worker": 2}, [], in_place=True),
    Shape("MultiWorkerMirrored", {"chief": 1, "worker": 2}, [], in_place=True, elastic=True),
    Shape("ParameterServer", {"chief": 1, "worker": 2, "ps": 2}, [], in_place=True),
]
EPOCH_STEPS = 100_000_000
BATCH = 32
_POD_EVERY, _TWICE_EVERY = 8, 5
_LEAST_SETTLE_SECONDS = 0.3
"""Of training before a kill."""
_TWICE_SECONDS = (0.0, 3.0)
"""Before a kill that does not wait for the recovery."""
_SUSPEND_SECONDS = 60.0
_MOST_KILLS = 1_000
"""The run's limits on restarts."""
_READ = """
import sys, tensorflow as tf
value = "/.ATTRIBUTES/VARIABLE_VALUE"
newest = max(sys.argv[1:], key=lambda path: int(path.rsplit("-", 1)[1]))
reader = tf.train.load_checkpoint(newest)
counts = reader.get_tensor("counts" + value) * {batch}
print("read", int(reader.get_tensor("optimizer/_iterations" + value)), *map(int, counts))
"""


@dataclass
class Results:
    """Of one strategy. The lists have a number for each recovery."""

    kills: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    steps: int = 0
    apart: int = 0
    """Examples that were counted too often, or not."""
    problem: str = ""


@dataclass(frozen=True)
class Kills:
    """For how many `minutes` tasks are killed, each after at most `most_seconds` of training. `in_turn`: of
    one role after the other, and not of a random one.
    """

    minutes: float
    most_seconds: float
    in_turn: bool
    chance: random.Random

    def settled(self) -> float:
        """Returns the seconds of training before the next kill."""
        return self.chance.uniform(_LEAST_SETTLE_SECONDS, self.most_seconds)

    def victim(self, shape: Shape, number: int) -> Task:
        """Returns the task of the kill with this number."""
        if not self.in_turn:
            return self.chance.choice(shape.tasks)
        roles = list(dict.fromkeys(role for role, _ in shape.tasks))
        return self.chance.choice([task for task in shape.tasks if task[0] == roles[number % len(roles)]])


def train(shape: Shape, kills: Kills, keras: int) -> Results:
    """Trains and kills, and checks the counts. `keras` is 2 or 3."""
    results = Results()
    with tempfile.TemporaryDirectory(prefix="endless-") as name:
        directory = Path(name)
        with Submitted(
            shape,
            directory,
            "local",
            entrypoint="counted:Counted",
            steps_per_epoch=EPOCH_STEPS,
            batch=BATCH,
            restarts=_MOST_KILLS,
            keras=keras,
        ) as training:
            try:
                _kill(training, shape, kills, results)
                training.suspend(_SUSPEND_SECONDS)
            except RuntimeError as error:
                results.problem = str(error)
                return results
        _count(directory / "model", shape, results)
    return results


def _kill(training: Submitted, shape: Shape, kills: Kills, results: Results) -> None:
    marks = training.marks
    began = until(training, partial(marks.first, "step", 0.0))
    end = time.time() + 60 * kills.minutes
    number = 0
    while time.time() < end:
        _settle(training, kills.settled())
        begun, first = began, 0.0
        while True:
            number += 1
            victim = kills.victim(shape, number)
            killed = training.kill(victim, whole=number % _POD_EVERY == 0)
            first = first or killed
            results.kills[victim[0]] = results.kills.get(victim[0], 0) + 1
            if number % _TWICE_EVERY:
                break
            _settle(training, kills.chance.uniform(*_TWICE_SECONDS))
        began = until(training, partial(marks.recovered, shape, victim, killed))
        results.seconds.append(began - killed)
        if shape.repeats(victim):
            results.lost.append(marks.lost(begun, first, began)[1])
        _tell(shape, victim, results)


def _settle(training: Submitted, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        training.look()
        time.sleep(0.05)


def _tell(shape: Shape, victim: Task, results: Results) -> None:
    lost = f", {results.lost[-1]:.2f} s of work" if shape.repeats(victim) else ""
    words = f"{shape.name}: {victim[0]} {victim[1]}: next step after {results.seconds[-1]:.2f} s{lost}"
    print(words, file=sys.stderr, flush=True)


def _count(model: Path, shape: Shape, results: Results) -> None:
    """Reads the steps and the counts of the newest checkpoint, and compares them."""
    paths = [str(path.with_suffix("")) for path in (model / "backup").glob("ckpt-*.index")]
    if not paths:
        results.problem = "no checkpoint"
        return
    command = [sys.executable, "-c", _READ.format(batch=BATCH), *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    match = re.search(r"^read (.*)$", done.stdout, re.M)
    assert match is not None, done.stdout
    steps, *counts = map(int, match[1].split())
    passes, rest = divmod(steps * BATCH, len(counts))
    due = [passes + (number < rest) for number in range(len(counts))]
    results.steps, most = steps, 0
    results.apart = abs(sum(counts) - sum(due))
    if shape.strategy == "ParameterServer":
        # Each worker reads an order of its own, and a killed one may have applied a part of its step.
        most = BATCH * results.kills.get("worker", 0)
    elif counts != due:
        results.problem = "other examples than those of its steps"
    if results.apart > most:
        results.problem = f"{sum(counts)} examples, {sum(due)} due"


def report(shapes: Sequence[Shape], results: Sequence[Results], minutes: float) -> str:
    """Returns the text of the table."""
    rows = []
    for shape, each in zip(shapes, results, strict=True):
        kills = ", ".join(f"{role} {count}" for role, count in sorted(each.kills.items()))
        seconds = [f"{of(numbers):.2f}" for numbers in (each.seconds, each.lost) for of in (_median, _most)]
        rows.append([shape.strategy + (", elastic" if shape.elastic else ""), kills, *seconds])
        told = f"{each.apart} examples apart" if each.apart else "exact"
        rows[-1] += [f"{each.steps}", each.problem or told]
    heads = [
        "strategy",
        "kills",
        "next step after, s",
        "at most",
        "work lost, s",
        "at most",
        "steps",
        "counts",
    ]
    return f"{minutes:g} minutes of each strategy.\n\n{table(heads, rows)}\n"


def _median(numbers: Sequence[float]) -> float:
    return statistics.median(numbers) if numbers else 0.0


def _most(numbers: Sequence[float]) -> float:
    return max(numbers, default=0.0)


def main() -> int:
    """Returns exit code 1 where a count is wrong."""
    parser = recording.parser("benchmarks.endless", str(__doc__), 1)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each strategy (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed kills the same tasks (%(default)s)"
    )
    names = sorted({shape.strategy for shape in SHAPES})
    parser.add_argument("--strategy", action="append", choices=names, help="only this one")
    parser.add_argument(
        "--most-seconds", type=float, default=12.0, help="of training before a kill (%(default)s)"
    )
    parser.add_argument("--in-turn", action="store_true", help="one role after the other, not a random one")
    parser.add_argument("--keras", type=int, default=2, choices=[2, 3], help="(%(default)s)")
    options = parser.parse_args()
    shapes = [shape for shape in SHAPES if shape.strategy in (options.strategy or names)] * options.rounds
    kills = Kills(options.minutes, options.most_seconds, options.in_turn, random.Random(options.seed))
    results = [train(shape, kills, options.keras) for shape in shapes]
    recording.publish("endless", report(shapes, results, options.minutes), record=options.record)
    return 1 if any(each.problem for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
