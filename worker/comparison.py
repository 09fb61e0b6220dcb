"""`python -m worker.comparison ONE OTHER [CONTROL]` compares what two trainings have noted in their model
directories: see `training.verification`. It prints a JSON document, of which the launcher reads what
differs, and where.

CONTROL is ONE again, from weights that are off by as much as a float32 is rounded. What it makes of that is
what the training itself makes of rounding, so a difference of this size is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FILE = "verification.npz"
BEGIN, FIRST, LAST = "begin", "first", "last"
"""Before the first step, after it, and after the last one."""
TOLERANCE, HALF_TOLERANCE = 1e-5, 1e-2
"""Relative for values above 1: of float32 sums in another order, and of those in 16 bits."""
_AS_CONTROL = 10.0
"""How many times the difference of the control is none."""


class _Noted:
    """What one `fit` has left."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.arrays = {name: arrays[name] for name in arrays.files}
        self.document: dict[str, Any] = json.loads(str(self.arrays.pop("document")))

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def moment(self, moment: str) -> list[Any]:
        count = len(self["names"])
        return [self.arrays[f"{moment}-{number}"] for number in range(count)] if self.has(moment) else []

    def has(self, moment: str) -> bool:
        return f"{moment}-0" in self.arrays


def compare(one: Path, other: Path, control: Path | None = None) -> list[dict[str, Any]]:
    """Returns a document for each `fit` that either has noted."""
    documents = []
    for name in sorted({*_files(one), *_files(other)}, key=lambda name: [len(name), name]):
        paths = [root / name for root in (one, other, control) if root is not None]
        if all(path.is_file() for path in paths):
            documents.append(_Pair(*map(_Noted, paths)).document())
        else:
            documents.append({"where": name, "missing": True, "there": [path.is_file() for path in paths]})
    return documents


def _files(root: Path) -> Iterator[str]:
    for path in (root / FILE, *root.glob(f"fits/*/{FILE}")):
        if path.is_file():
            yield path.relative_to(root).as_posix()


class _Pair:
    def __init__(self, one: _Noted, other: _Noted, control: _Noted | None = None) -> None:
        self._one, self._other, self._control = one, other, control
        self._tolerance = HALF_TOLERANCE if one["half"] else TOLERANCE

    def document(self) -> dict[str, Any]:
        one, other = self._one, self._other
        sizes = np.diff([0, *one["examples"]])
        in_order = other["in_order"]
        moments = {moment: self._weights(moment) for moment in (BEGIN, FIRST, LAST)} if in_order else {}
        return {
            "where": one["where"],
            "in_order": in_order,
            "tolerance": self._tolerance,
            "replicas": other["replicas"],
            "steps": [one["steps"], other["steps"]],
            "examples": [int(each.arrays["seen"].sum()) for each in (one, other)],
            **self._examples(),
            # Workers that each read all data may have more of its smaller last batches.
            "uneven": 0 if in_order else int(np.ptp(sizes)) * one["steps"],
            "results": self._results() if in_order else [],
            "step": self._first_step() if in_order else None,
            "moments": moments,
            "gradients": self._gradients() if in_order else None,
            "data": [*one["data"], *other["data"]],
            **{name: one[name] for name in ("layers", "drawn", "clipped", "half")},
        }

    def _examples(self) -> dict[str, int]:
        """Returns how many examples of one process were left out, and how many others came instead."""
        one, other = (each.arrays["seen"] for each in (self._one, self._other))
        if one.shape != other.shape:  # a coordinator's are not told apart
            return {"left_out": 0, "instead": 0}
        more = other - one
        return {"left_out": int(-more[more < 0].sum()), "instead": int(more[more > 0].sum())}

    def _results(self) -> list[dict[str, Any]]:
        """Returns what `fit` and its validation have reported, in their order."""
        of_control = (self._control or self._one)["results"]
        results = []
        for name, value in self._one["results"].items():
            other = self._other["results"].get(name)
            if other is None:
                continue
            far = _far(value, other)
            allowed = self._allowed(_far(value, of_control.get(name, value)))
            results.append({"name": name, "values": [value, other], "far": far, "same": far <= allowed})
        return results

    def _first_step(self) -> int | None:
        """Returns the first step, from 1, whose results differ; None where there is none."""
        control = self._control or self._one
        steps = zip(*(each["steps_results"] for each in (self._one, self._other, control)))
        for number, (one, other, again) in enumerate(steps, 1):
            for name in one.keys() & other.keys():
                allowed = self._allowed(_far(one[name], again[name]))
                if not _far(one[name], other[name]) <= allowed:
                    return number
        return None

    def _weights(self, moment: str) -> dict[str, Any]:
        """Returns the greatest difference, and the first variable that differs, "" where there is none."""
        ones, others = self._one.moment(moment), self._other.moment(moment)
        controls = (self._control or self._one).moment(moment)
        first, far_first, most = "", 0.0, 0.0
        if len(ones) != len(others):
            return {"first": "the number of variables", "far": np.inf, "most": np.inf}
        for name, one, other, control in zip(self._one["names"], ones, others, controls):
            far = _far(one, other)
            most = max(most, far)
            if not far <= self._allowed(_far(one, control)) and not first:
                first, far_first = name, far
        return {"first": first, "far": far_first, "most": most}

    def _gradients(self) -> float | None:
        """Returns by which number the other's first step is that of one process multiplied, as the weights
        tell or what the optimizer has made of the gradients. None where it is none, or 1.
        """
        if not (self._one.has(FIRST) and self._other.has(FIRST)):
            return None
        moves = []
        for each in (self._one, self._other):
            pairs = zip(each.moment(FIRST), each.moment(BEGIN))
            moves.append([np.ravel(after).astype("float64") - np.ravel(before) for after, before in pairs])
        kinds = self._one["kinds"]
        trained = [
            np.concatenate([m for m, kind in zip(move, kinds) if kind == "trained"] or [np.array([])])
            for move in moves
        ]
        kept = [(a, b) for a, b, kind in zip(*moves, kinds) if kind == "optimizer" and a.size > 1]
        for one, other in [(trained[0], trained[1]), *kept]:
            if one.shape != other.shape or not (np.any(one) and np.any(other)):
                continue
            product, norm = float(one @ other), float(np.linalg.norm(one) * np.linalg.norm(other))
            ratio = product / float(one @ one)
            if product > 0.999 * norm and abs(ratio - 1) > 0.02:
                return ratio
        return None

    def _allowed(self, control: float) -> float:
        return max(self._tolerance, _AS_CONTROL * control)


def _far(one: Any, other: Any) -> float:
    one, other = np.asarray(one, "float64"), np.asarray(other, "float64")
    if one.shape != other.shape:
        return float("inf")
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        far = np.where(same, 0.0, np.abs(one - other) / np.maximum(1.0, np.abs(one)))
    return float("inf") if np.any(np.isnan(far)) else float(np.max(far, initial=0.0))


def main(arguments: Sequence[str]) -> None:
    """Prints the documents as one line."""
    print(json.dumps(compare(*map(Path, arguments))))


if __name__ == "__main__":
    main(sys.argv[1:])
