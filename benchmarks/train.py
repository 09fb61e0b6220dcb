"""What the worker runtime costs a training: its steps a second and its memory, against the loops of
TensorFlow's tutorials written out by hand, with the same model and data on the same cores.

In each round every contestant trains one epoch while the others are stopped, so that a machine that is slower
for a minute is slower for all of them. MultiWorkerMirrored's workers miss each other when they are stopped
for some seconds, so there a contestant trains all of its epochs before the next one starts.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import recording
from benchmarks.contestants import Contestant, Training, Way
from benchmarks.measuring import table

PACKED = 10
ROUNDS = 10

PARAMETER_SERVER = {"chief": 1, "worker": 2, "ps": 1}
TRAININGS = {
    "ps-loop": Training("ParameterServer", "loop", "small:ByLoss", PARAMETER_SERVER, 1000),
    "ps-fit": Training("ParameterServer", "fit", "small:ByFit", PARAMETER_SERVER, 500),
    "multi-loop": Training("MultiWorkerMirrored", "loop", "small:ByLoss", {"worker": 2}, 500),
    "multi-fit": Training("MultiWorkerMirrored", "fit", "small:ByFit", {"worker": 2}, 500),
    "mirrored-loop": Training("Mirrored", "loop", "small:ByLoss", {"chief": 1}, 1000, {"logicalCpus": 2}),
    "mirrored-fit": Training("Mirrored", "fit", "small:ByFit", {"chief": 1}, 1000, {"logicalCpus": 2}),
}
HAND, RUNTIME = Way(PACKED, False), Way(PACKED, True)
ONE_STEP, AUTO = Way(1, False), Way("auto", True)
WAYS = (HAND, RUNTIME, ONE_STEP, AUTO)


@dataclass(frozen=True)
class Measured:
    """Steps a second of each epoch but the first, and each role's peak of resident memory in MB."""

    rates: Sequence[float]
    memory: Mapping[str, float]


def contest(name: str, rounds: int) -> dict[Way, Measured]:
    """The training `name` in all ways, epoch by epoch in turns."""
    training = TRAININGS[name]
    if not training.may_stop:
        return {way: _alone(training, way, rounds) for way in WAYS}
    rates: dict[Way, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        contestants = {}
        for way in WAYS:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            contestants[way] = stack.enter_context(Contestant(training, way, rounds + 1, directory))
            contestants[way].turn()  # with the start, tracing and the search for auto
        for number in range(1, rounds + 1):
            for way, contestant in contestants.items():
                rates[way].append(contestant.turn())
                print(f"{name}, round {number} of {rounds}: {_said(way, rates[way])}", file=sys.stderr)
        return {way: Measured(rates[way], contestant.finish()) for way, contestant in contestants.items()}


def _alone(training: Training, way: Way, rounds: int) -> Measured:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contestant = stack.enter_context(Contestant(training, way, rounds + 1, directory))
        contestant.turn()
        rates = [contestant.turn() for _ in range(rounds)]
        print(f"{training.strategy} {training.loop}: {_said(way, rates)}", file=sys.stderr)
        return Measured(rates, contestant.finish())


def _said(way: Way, rates: Sequence[float]) -> str:
    by = "by the runtime" if way.runtime else "by hand"
    return f"{rates[-1]:.0f} steps a second {by} with {way.packed} a call"


def main() -> None:
    """Measures and prints."""
    parser = recording.parser("benchmarks.train", str(__doc__), ROUNDS)
    parser.add_argument("trainings", nargs="*", metavar="TRAINING", help=f"of {', '.join(TRAININGS)} (all)")
    options = parser.parse_args()
    if unknown := sorted({*options.trainings} - {*TRAININGS}):
        parser.error(f"no such training: {', '.join(unknown)}")
    speeds: list[Sequence[str]] = []
    memories: list[Sequence[str]] = []
    for name in options.trainings or TRAININGS:
        taken = contest(name, options.rounds)
        speeds.append(_speed(name, taken, HAND, RUNTIME, "0.98"))
        speeds.append(_speed(name, taken, ONE_STEP, AUTO, "3" if name == "ps-loop" else ""))
        for role in TRAININGS[name].replicas:
            hand, runtime = taken[HAND].memory[role], taken[RUNTIME].memory[role]
            memories.append((name, role, f"{hand:.0f}", f"{runtime:.0f}", f"{runtime / hand:.3f}", "1.05"))
    heads = ("training", "by hand", "runtime", "by hand /s", "runtime /s", "ratio", "at least")
    text = (
        f"{options.rounds} epochs of each in turns, after a first one that is not counted; medians, of the"
        " rounds' ratios too. Two workers where there are workers.\n\n"
        f"Steps a second, with so many steps a call:\n\n{table(heads, speeds)}\n\n"
        "Peak of resident memory, MB:\n\n"
        + table(("training", "role", "by hand", "runtime", "ratio", "at most"), memories)
    )
    recording.publish("train", text, record=options.record)


def _speed(name: str, taken: Mapping[Way, Measured], hand: Way, runtime: Way, least: str) -> Sequence[str]:
    pairs = zip(taken[runtime].rates, taken[hand].rates, strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    rates = [f"{statistics.median(taken[way].rates):.0f}" for way in (hand, runtime)]
    return name, str(hand.packed), str(runtime.packed), *rates, f"{ratio:.2f}", least


if __name__ == "__main__":
    main()
