"""The epoch whose checkpoint stays because it is the best by a metric."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from worker.checkpoints.files import Files

OF_EVALUATION = "val_"
"""How the names of metrics on the evaluation dataset begin, in Keras."""
OF_TRAINING = "checkpoints/best.json"
_OF_EVALUATOR = "logs/evaluation/best.json"


class Best:
    """Remembers the best epoch in the file `name`, also for later attempts of the run.

    Who scores the epochs calls `offer`; whoever removes checkpoints asks for `epoch`. `run_id` is "" where
    other runs' checkpoints count, too.
    """

    def __init__(
        self, files: Files, name: str, metric: str, mode: str, run_id: str = "", *, offers: bool = True
    ) -> None:
        self._files = files
        self._name = name
        self._metric = metric
        self._sign = 1.0 if mode == "Max" else -1.0
        self._run_id = run_id
        self._offers = offers
        self._notice_given = False

    def check(self, metrics: Mapping[str, float], notice: Callable[[str], None]) -> None:
        """Says once where the metric is not among those of an epoch."""
        if self._offers and self._metric not in metrics and not self._notice_given:
            self._notice_given = True
            known = ", ".join(sorted(metrics)) or "none"
            notice(
                f"spec.checkpoints.keepBest: no best checkpoint is kept: an epoch has no metric "
                f"{self._metric!r}; it has {known}"
            )

    def offer(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Remembers `epoch` where it is better than all before, and this object is not for reading only."""
        value = metrics.get(self._metric, math.nan)
        if not self._offers or math.isnan(value):
            return
        known = self._read()
        if known is None or self._sign * value > self._sign * known[1]:
            document = {"runId": self._run_id, "epoch": epoch, "metric": self._metric, "value": value}
            self._files.write(self._name, json.dumps(document) + "\n")

    def epoch(self) -> int | None:
        """Returns the best epoch, None where none was scored."""
        known = self._read()
        return None if known is None else known[0]

    def _read(self) -> tuple[int, float] | None:
        try:
            document = json.loads(self._files.read(self._name) or "")
            same = document["metric"] == self._metric and document["runId"] == self._run_id
            return (int(document["epoch"]), float(document["value"])) if same else None
        except (ValueError, KeyError, TypeError):
            return None


def best_of_evaluator(
    files: Files, metric: str | None, mode: str, run_id: str, *, offers: bool
) -> Best | None:
    """Returns the best epoch by a metric of the evaluator, which has them without `OF_EVALUATION`; None for
    another metric.
    """
    if metric is None or not metric.startswith(OF_EVALUATION):
        return None
    return Best(files, _OF_EVALUATOR, metric[len(OF_EVALUATION) :], mode, run_id, offers=offers)
