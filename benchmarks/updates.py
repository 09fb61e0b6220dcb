"""What it costs that each update of a variable under ParameterServer runs alone: steps a second with the
locks for it, against those without.

Once a small dense model, and once one with a large embedding of which a step needs a few rows. In each round
both train one epoch while the other is stopped.
"""

from __future__ import annotations

import statistics
import sys

from benchmarks import recording
from benchmarks.contestants import Training
from benchmarks.keras_3 import PACKED, contest
from benchmarks.measuring import table

ROUNDS = 5
SERVERS = (1, 2)
MODELS = {
    ("tf_keras", "dense"): ("small:UnlockedByFit", "small:ByFit"),
    ("tf_keras", "wide"): ("small:UnlockedWide", "small:Wide"),
    ("Keras 3", "dense"): ("small:UnlockedByFitOfKeras3", "small:ByFitOfKeras3"),
    ("Keras 3", "wide"): ("small:UnlockedWideOfKeras3", "small:WideOfKeras3"),
}


def main() -> None:
    """Measures and prints."""
    options = recording.parser("benchmarks.updates", str(__doc__), ROUNDS).parse_args()
    rows = []
    for servers in SERVERS:
        replicas = {"chief": 1, "worker": 2, "ps": servers}
        for (keras, name), entrypoints in MODELS.items():
            training = Training("ParameterServer", "fit", "", replicas, 300)
            without, held = contest(training, entrypoints, options.rounds)
            ratio = statistics.median(ours / theirs for ours, theirs in zip(held, without, strict=True))
            rates = [f"{statistics.median(each):.0f}" for each in (without, held)]
            rows.append((keras, name, str(servers), *rates, f"{ratio:.2f}"))
            print(f"{keras}, {name}, {servers} ps: {ratio:.2f}", file=sys.stderr)
    heads = ("Keras", "model", "ps", "without /s", "with /s", "ratio")
    text = (
        f"Adam, 2 workers, {options.rounds} epochs of each, after a first one that is not counted, {PACKED} "
        f"steps a call. Medians, of the rounds' ratios too.\n\n{table(heads, rows)}"
    )
    recording.publish("updates", text, record=options.record)


if __name__ == "__main__":
    main()
