"""What is the same, and what the numbers of two trainings say where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worker.comparison import BEGIN, FILE, FIRST, LAST, compare

WEIGHTS = np.array([1.0, -2.0, 3.0], "float32")
STEP = np.array([0.1, -0.2, 0.05], "float32")


def note(
    root: Path, *, times: float = 1.0, off: float = 0.0, seen: Any = (2, 2, 2, 0), **changed: Any
) -> Path:
    """Writes what a training with a weight and its momentum leaves."""
    document = {
        "where": "train.py:7",
        "kinds": ["trained", "optimizer"],
        "names": ["dense/kernel", "momentum"],
        "replicas": 2,
        "in_order": True,
        "steps": 2,
        "examples": [3, 6],
        "steps_results": [{"loss": [2.0 + off, 3.0]}],
        "results": {"loss": 0.5 + off},
        "layers": {},
        "drawn": "",
        "clipped": "",
        "half": False,
        "data": [],
        **changed,
    }
    moved = WEIGHTS + STEP  # as by Adam, whatever the gradient is multiplied by
    arrays = {
        f"{BEGIN}-0": WEIGHTS,
        f"{BEGIN}-1": 0 * STEP,
        f"{FIRST}-0": moved + np.float32(off),
        f"{FIRST}-1": STEP * np.float32(times),
        f"{LAST}-0": moved + STEP + np.float32(off),
        f"{LAST}-1": STEP,
    }
    path = root / changed.get("at", ".") / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, document=np.array(json.dumps(document)), seen=np.array(seen), **arrays)
    return root


def test_the_same_has_no_difference(tmp_path: Path) -> None:
    (comparison,) = compare(note(tmp_path / "one"), note(tmp_path / "other", off=9e-6))
    assert [each["same"] for each in comparison["results"]] == [True]
    assert [each["first"] for each in comparison["moments"].values()] == ["", "", ""]
    assert (comparison["step"], comparison["gradients"], comparison["left_out"]) == (None, None, 0)


def test_a_difference_has_a_step_and_a_variable(tmp_path: Path) -> None:
    (comparison,) = compare(note(tmp_path / "one"), note(tmp_path / "other", off=0.01))
    assert [each["same"] for each in comparison["results"]] == [False]
    assert comparison["step"] == 1
    assert comparison["moments"][BEGIN]["first"] == ""
    assert comparison["moments"][FIRST]["first"] == "dense/kernel"
    assert comparison["moments"][FIRST]["far"] == pytest.approx(0.01 / 1.1, rel=1e-3)


@pytest.mark.parametrize(("drift", "same"), [(0.002, True), (0.0005, False)])
def test_what_one_process_makes_of_a_rounding_is_none(tmp_path: Path, drift: float, same: bool) -> None:
    one, other = note(tmp_path / "one"), note(tmp_path / "other", off=0.01)
    (comparison,) = compare(one, other, note(tmp_path / "control", off=drift))
    assert [each["same"] for each in comparison["results"]] == [same]
    assert (comparison["step"] is None) == same
    assert (comparison["moments"][LAST]["first"] == "") == same


def test_moments_tell_of_a_gradient_that_adams_step_hides(tmp_path: Path) -> None:
    (comparison,) = compare(note(tmp_path / "one"), note(tmp_path / "other", times=2.0))
    assert comparison["gradients"] == pytest.approx(2.0)
    assert comparison["moments"][FIRST]["first"] == "momentum"


def test_examples_are_told_apart(tmp_path: Path) -> None:
    (comparison,) = compare(note(tmp_path / "one"), note(tmp_path / "other", seen=(4, 0, 1, 1)))
    assert (comparison["examples"], comparison["left_out"], comparison["instead"]) == ([6, 6], 3, 3)


def test_a_coordinators_workers_are_counted(tmp_path: Path) -> None:
    other = note(tmp_path / "other", seen=(5,), in_order=False, off=1.0)
    (comparison,) = compare(note(tmp_path / "one", examples=[4, 6]), other)
    assert (comparison["examples"], comparison["left_out"], comparison["uneven"]) == ([6, 5], 0, 4)
    assert (comparison["results"], comparison["moments"]) == ([], {})


def test_a_fit_that_one_lacks_is_told(tmp_path: Path) -> None:
    one, other = note(tmp_path / "one"), note(tmp_path / "other")
    note(tmp_path / "other", at="fits/2")
    _, comparison = compare(one, other)
    assert comparison["there"] == [False, True]


def test_nan_differs_from_a_number_and_not_from_itself(tmp_path: Path) -> None:
    one, other = note(tmp_path / "one"), note(tmp_path / "other", results={"loss": float("nan")})
    (comparison,) = compare(one, other)
    assert [each["same"] for each in comparison["results"]] == [False]
    (comparison,) = compare(other, other)
    assert [each["same"] for each in comparison["results"]] == [True]
