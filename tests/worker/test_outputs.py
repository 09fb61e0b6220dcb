"""What Keras knows of a model's outputs, and inputs in a SparseTensor: several replicas train as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker.test_custom_loop import (
    CENTRAL_STORAGE,
    MIRRORED,
    ONE,
    TWO_WORKERS,
    assert_same,
    curve,
    trained,
)

thorough = pytest.mark.thorough
SHAPES = ("Saturated", "SaturatedClasses", "Looped", "Tagged", "Sparse")


@pytest.mark.parametrize("keras", [2, pytest.param(3, marks=thorough)])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(MIRRORED, id="Mirrored"),
        pytest.param(CENTRAL_STORAGE, id="CentralStorage", marks=thorough),
        pytest.param(TWO_WORKERS, id="MultiWorkerMirrored", marks=thorough),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_replicas_train_as_one(tmp_path: Path, shape: str, options: dict[str, Any], keras: int) -> None:
    curves = [
        curve(trained(tmp_path / name, f"outputs:{shape}", {}, keras=keras, **given))
        for name, given in (("one", ONE), ("several", options))
    ]
    assert curves[0][2]["loss"] < 0.95 * curves[0][0]["loss"]
    assert_same(curves)
