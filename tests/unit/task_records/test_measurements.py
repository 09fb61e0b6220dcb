from __future__ import annotations

from launcher.task_records.measurements import Measurement, of_records
from tests.unit.histories import BEGIN, says, step


def test_training_and_evaluations_by_time_and_a_step_that_was_repeated_once() -> None:
    lines = [
        says("evaluator", 0, 0, 6.0, "evaluation", checkpoint="ckpt-1", epoch=1, metrics={"loss": 0.7}),
        step(1.0, 1, 4, loss=None, metrics={}),
        step(2.0, 1, 6, loss=float("nan"), metrics={"accuracy": 0.5}),
        step(4.0, 1, 6, attempt=1, loss=0.9, metrics={"accuracy": 0.6}),
        step(5.0, 1, 10, attempt=1, loss=0.8, metrics={}),
        step(7.0, 2, 10, attempt=1, loss=0.6, metrics={}),
        says("chief", 0, 0, 3.0, "ready"),
    ]
    assert of_records(line.record for line in lines if line.record is not None) == [
        Measurement({"accuracy": 0.6, "loss": 0.9}, 1, 6, False, False, BEGIN + 4),
        Measurement({"loss": 0.8}, 1, 10, True, False, BEGIN + 5),
        Measurement({"loss": 0.7}, 1, None, True, True, BEGIN + 6),
        Measurement({"loss": 0.6}, 2, 10, True, False, BEGIN + 7),
    ]
