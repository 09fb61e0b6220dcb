"""Steps a second of a Keras 3 model by the runtime, against the same model of tf_keras by the runtime.

Once a small dense model, and once one with a large embedding of which a step needs a few rows. In each round
both train one epoch while the other is stopped; under MultiWorkerMirrored, whose workers miss each other when
they are stopped, one trains all of its epochs before the other.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import recording
from benchmarks.contestants import Contestant, Training, Way
from benchmarks.measuring import table

PACKED = 10
ROUNDS = 5
STRATEGIES = {
    "ParameterServer": Training("ParameterServer", "fit", "", {"chief": 1, "worker": 2, "ps": 1}, 300),
    "MultiWorkerMirrored": Training("MultiWorkerMirrored", "fit", "", {"worker": 2}, 300),
    "Mirrored": Training("Mirrored", "fit", "", {"chief": 1}, 300, {"logicalCpus": 2}),
}
MODELS = {"dense": ("small:ByFit", "small:ByFitOfKeras3"), "wide": ("small:Wide", "small:WideOfKeras3")}


def contest(training: Training, entrypoints: Sequence[str], rounds: int) -> list[list[float]]:
    """Returns each program's steps a second in every round."""
    rates: list[list[float]] = [[] for _ in entrypoints]
    with ExitStack() as stack:
        contestants = []
        for entrypoint, program_rates in zip(entrypoints, rates, strict=True):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            contestant = Contestant(
                replace(training, entrypoint=entrypoint), Way(PACKED, True), rounds + 1, directory
            )
            if training.may_stop:
                contestants.append(stack.enter_context(contestant))
                contestant.turn()  # with the start and tracing
                continue
            with contestant:
                contestant.turn()
                program_rates += [contestant.turn() for _ in range(rounds)]
                contestant.finish()
        if contestants:
            for _ in range(rounds):
                for contestant, program_rates in zip(contestants, rates, strict=True):
                    program_rates.append(contestant.turn())
            for contestant in contestants:
                contestant.finish()
    return rates


def main() -> None:
    """Measures and prints."""
    options = recording.parser("benchmarks.keras_3", str(__doc__), ROUNDS).parse_args()
    rows = []
    for strategy, training in STRATEGIES.items():
        for name, entrypoints in MODELS.items():
            old, new = contest(training, entrypoints, options.rounds)
            ratio = statistics.median(ours / theirs for ours, theirs in zip(new, old, strict=True))
            rates = [f"{statistics.median(each):.0f}" for each in (old, new)]
            rows.append((strategy, name, *rates, f"{ratio:.2f}"))
            print(f"{strategy}, {name}: {ratio:.2f}", file=sys.stderr)
    heads = ("strategy", "model", "tf_keras /s", "Keras 3 /s", "ratio")
    text = (
        f"{options.rounds} epochs of each, after a first one that is not counted, {PACKED} steps a call. "
        f"Medians, of the rounds' ratios too.\n\n{table(heads, rows)}"
    )
    recording.publish("keras-3", text, record=options.record)


if __name__ == "__main__":
    main()
