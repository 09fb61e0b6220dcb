"""What the runtime itself reads from `spec.program.parameters`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

BATCH_SIZES: Final = ("globalBatchSize", "batchSizePerReplica")

DATA_DIRECTORY: Final = "dataDir"
"""The program's parameter with its data. The runtime opens it where it is a URL that TensorFlow cannot."""

DATA_LIMIT: Final = "dataLimitGB"

DATA_LIMIT_GB: Final = 10
"""How much of it a task copies where DATA_LIMIT says nothing, in 10^9 bytes."""

ITERATIONS: Final = ("steps", "batches", "epoch")

PARAMETERS: Final = (
    "epochs",
    "stepsPerEpoch",
    *BATCH_SIZES,
    "stepsPerExecution",
    "checkpointEpochs",
    "keepCheckpoints",
    "iteration",
    DATA_LIMIT,
)
"""The names in `spec.program.parameters` that the runtime reads. All others belong to the program."""

SCRIPT_PARAMETERS: Final = ("checkpointEpochs", "keepCheckpoints", "stepsPerExecution")
"""Those that a run of a script may have: its `fit` says the others."""

_NEVER_NULL: Final = ("epochs", "checkpointEpochs", "keepCheckpoints", DATA_LIMIT)


def parameter_problems(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the name of each parameter of the runtime that is wrong, and a sentence that says why."""
    for name in PARAMETERS:
        value = parameters.get(name)
        if name not in parameters or (value is None and name not in _NEVER_NULL):
            continue
        if name == "iteration":
            if value not in ITERATIONS:
                yield name, f"expected {' or '.join(ITERATIONS)}, got {_shown(value)}"
        elif name == "stepsPerExecution" and value == "auto":
            continue
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            expected = "an integer from 1" + (", or auto" if name == "stepsPerExecution" else "")
            yield name, f"expected {expected}, got {_shown(value)}"
    given = parameters.get("iteration")
    if given in ITERATIONS[1:] and parameters.get("stepsPerExecution") is not None:
        yield (
            "stepsPerExecution",
            f"iteration: {given} leaves no choice; remove it, or use iteration: {ITERATIONS[0]}",
        )
    first, second = BATCH_SIZES
    if all(parameters.get(name) is not None for name in BATCH_SIZES):
        yield second, f"give it or {first}, not both: {first} is this times the replicas"


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
