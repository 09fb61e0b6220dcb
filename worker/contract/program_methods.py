"""The methods that a program may define, as `worker.program.Program` documents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REQUIRED: Final = ("model", "train_dataset")
OPTIONAL: Final = (
    "evaluation_dataset",
    "predict_dataset",
    "loss",
    "train_step",
    "test_step",
    "callbacks",
    "export",
)
SIGNATURES: Final[Mapping[str, str]] = {
    "model": "model()",
    "train_dataset": "train_dataset(batch_size)",
    "evaluation_dataset": "evaluation_dataset(batch_size)",
    "predict_dataset": "predict_dataset(batch_size)",
    "loss": "loss(labels, predictions)",
    "train_step": "train_step(model, batch, global_batch_size)",
    "test_step": "test_step(model, batch)",
    "callbacks": "callbacks()",
    "export": "export(model, path)",
}


def argument_count(method: str) -> int:
    """Returns the number of arguments that a method is called with, the object itself left out."""
    arguments = SIGNATURES[method].partition("(")[2].rstrip(")")
    return len(arguments.split(",")) if arguments else 0
