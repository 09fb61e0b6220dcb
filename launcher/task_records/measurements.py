"""Records -> what a run has measured of its model, for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from worker.contract.records import Evaluation, Progress, Record


@dataclass(frozen=True)
class Measurement:
    """Values of the model at one moment of the training.

    `metrics` maps names to values, "loss" among them; a value may be NaN or infinite. `epoch` counts from 1,
    and is None for an evaluation of a checkpoint whose epoch is not known. `step` is the number of steps of
    that epoch that are done, None for an evaluation. `epoch_end`: the values are those of the whole epoch,
    and not of its steps so far. `evaluation`: they are of the evaluator's data, not of the training's. `time`
    is seconds since the epoch of Unix, by the clock of the task that measured.
    """

    metrics: Mapping[str, float]
    epoch: int | None
    step: int | None
    epoch_end: bool
    evaluation: bool
    time: float


def of_records(records: Iterable[Record]) -> list[Measurement]:
    """Returns the measurements, oldest first. Of a step that was done twice, after the loss of a task, only
    the later one counts.
    """
    measurements: dict[object, Measurement] = {}
    for record in sorted(records, key=lambda record: record.time):
        content = record.content
        if isinstance(content, Progress) and content.values:
            each = Measurement(
                content.values, content.epoch, content.step, content.epoch_end, False, record.time
            )
        elif isinstance(content, Evaluation):
            each = Measurement(content.metrics, content.epoch, None, True, True, record.time)
        else:
            continue
        key = (
            content.checkpoint
            if isinstance(content, Evaluation)
            else (content.epoch, content.step, content.epoch_end)
        )
        measurements.pop(key, None)
        measurements[key] = each
    return list(measurements.values())
