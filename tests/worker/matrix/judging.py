"""Decides whether a cell's result is right, by comparing its numbers with those of a plain training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tests.worker.matrix.cells import KERAS_3, PROGRAMS, REFUSALS, STRATEGIES, Cell, reference_style


class Tolerances(NamedTuple):
    """Relative for values above 1: of float32 sums in another order; of float16 sums, and the same where one
    device computes them.
    """

    whole: float
    half: float
    half_of_one: float


ON_CPUS: Final = Tolerances(1e-5, 1e-2, 1e-3)
"""A processor that computes in float16 (AVX-512 FP16) does the product and the bias of a layer as one, with
one rounding in the place of two: results differ by 2^-10 at most.
"""
ON_GPUS: Final = Tolerances(1e-3, 5e-2, 5e-2)
"""The order of a GPU's sums differs from one size of a batch to the other."""


@dataclass(frozen=True)
class Verdict:
    """`kind` is trains, refused or failed; `why` is a sentence for the latter two."""

    kind: str
    why: str
    differences: Mapping[str, float]


def judge(
    cell: Cell,
    outcome: Mapping[str, Any],
    references: Mapping[tuple[str, str], Mapping[str, Any]],
    folder: Path,
    plain: Path,
    tolerances: Tolerances = ON_CPUS,
) -> Verdict:
    """Judges `outcome`, the result of `driving.run`, whose folder is `folder`; `plain` is the result of
    `references`.
    """
    if outcome["outcome"] == "refused":
        return _refused(cell, outcome["message"], outcome["after_a_step"])
    if outcome["outcome"] == "failed":
        # An error of model() or a dataset is one message to the user, too: it may say what to write instead.
        refusal = (
            _refused(cell, outcome["told"][-1], outcome["after_a_step"]) if outcome.get("told") else None
        )
        return refusal if refusal and refusal.kind == "refused" else Verdict("failed", outcome["message"], {})
    kind = reference_style(cell)
    reference = references[cell.shape, kind]
    if "error" in reference:
        return Verdict("failed", f"the reference: {reference['error']}", {})
    differences: dict[str, float] = {}
    wrong: list[str] = []
    one = cell.strategy == "OneDevice"
    tolerance = tolerances.whole
    if cell.shape == "mixed-precision":
        tolerance = tolerances.half_of_one if one else tolerances.half
    # Each replica normalises by its own examples.
    apart = cell.shape == "batch-normalization" and not one

    def compare(name: str, far: float) -> None:
        differences[name] = far
        if not far <= tolerance:
            wrong.append(f"{name} off by {far:.2g}")

    def compare_all(name: str, wanted: Mapping[str, float], given: Mapping[str, float]) -> None:
        for metric in ("loss", "seen"):
            if not any(metric in key for key in given):
                wrong.append(f"{name} lacks {metric}")
        shared = [key for key in given if key in wanted]
        compare(name, max(abs(wanted[key] - given[key]) / max(1.0, abs(wanted[key])) for key in shared))
        if differences[name] > tolerance:
            wrong.append(f"{name}: {_rounded(given, shared)}, wanted {_rounded(wanted, shared)}")

    if outcome["iterations"] != reference["iterations"]:
        wrong.append(f"{outcome['iterations']} iterations, not {reference['iterations']}")
    for name in ("export", "resume"):
        if f"{name}_difference" in outcome:
            compare(name, outcome[f"{name}_difference"])
    exact = STRATEGIES[cell.strategy].exact
    # How unequal shares are weighed is a script's own arithmetic.
    if exact and not apart and (one or reference["whole"] or cell.style in PROGRAMS):
        weights = _load(folder / f"{'-'.join(cell)}.npz")
        compare("weights", _far(_load(plain / f"{cell.shape}.{kind}.npz"), weights))
    if cell.style in PROGRAMS:
        given = dict(outcome["logs"])
        if cell.style == "step":
            # The mean of the steps' losses, each as the program computes it.
            given["loss"] = reference["logs"]["loss"]
        scores = outcome["scores"]
        if "scored" in outcome:
            if "error" in outcome["scored"]:
                wrong.append(f"the evaluator: {outcome['scored']['error']}")
            evaluations = outcome["scored"]["evaluations"]
            if [epoch for epoch, _ in evaluations] != [1, 2]:
                wrong.append(f"the evaluator scored the epochs {[epoch for epoch, _ in evaluations]}")
            scores = evaluations[-1][1] if evaluations else None
        if exact:
            if not apart:
                compare_all("training", reference["logs"], given)
                if scores is not None:
                    compare_all("evaluation", reference["scores"], scores)
        else:
            if reference["whole"]:
                seen = [key for key in given if "seen" in key and not key.startswith("val_")]
                if [given[key] for key in seen] != [reference["logs"][key] for key in seen]:
                    wrong.append(f"{[given[key] for key in seen]} examples seen in an epoch")
            plain_scores = outcome["plain_scores"]
            if cell.style == KERAS_3:  # see plain.py
                plain_scores = {k: value for k, value in plain_scores.items() if not k.endswith("_loss")}
            compare_all("evaluation", plain_scores, scores)
            after = outcome["plain_logs"]["loss"]
            if not after < reference["loss_before"]:
                wrong.append(f"the loss went from {reference['loss_before']} to {after}")
    return Verdict("failed" if wrong else "trains", "; ".join(wrong), differences)


def _refused(cell: Cell, message: str, begun: bool) -> Verdict:
    for refusal in REFUSALS:
        if refusal.of(cell, message, begun):
            return Verdict("refused", refusal.shown or message, {})
    when = " after training had begun" if begun else ""
    return Verdict("failed", f"refused{when}, which is not expected: {message}", {})


def _load(path: Path) -> list[Any]:
    with np.load(path) as arrays:
        return [arrays[name] for name in sorted(arrays.files, key=lambda name: int(name[4:]))]


def _far(wanted: list[Any], given: list[Any]) -> float:
    if [one.shape for one in wanted] != [other.shape for other in given]:
        return float("inf")
    return max(
        float(np.max(np.abs(one - other) / np.maximum(1.0, np.abs(one))))
        for one, other in zip(wanted, given, strict=True)
    )


def _rounded(metrics: Mapping[str, float], names: list[str]) -> dict[str, float]:
    return {name: round(metrics[name], 6) for name in names}
