"""What Keras knows of a model's outputs, and inputs in a SparseTensor: several replicas train as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker.training.test_replicas import (
    CENTRAL_STORAGE,
    MIRRORED,
    ONE,
    TWO_WORKERS,
    assert_same,
    curve,
    trained,
)

pytestmark = pytest.mark.thorough


@pytest.mark.by_day(runtime=("Sparse-2", "Looped-2"))
@pytest.mark.parametrize(
    ("keras", "several"),
    [
        pytest.param(2, [MIRRORED], id="2"),
        pytest.param(3, [MIRRORED, TWO_WORKERS], id="3", marks=pytest.mark.nightly),
        pytest.param(2, [CENTRAL_STORAGE, TWO_WORKERS], id="2-others", marks=pytest.mark.nightly),
        pytest.param(3, [CENTRAL_STORAGE], id="3-others", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("shape", ["Saturated", "Tagged", "Sparse", "SaturatedClasses", "Looped"])
def test_replicas_train_as_one(tmp_path: Path, shape: str, several: list[dict[str, Any]], keras: int) -> None:
    curves = [
        curve(trained(tmp_path / str(index), f"outputs:{shape}", {}, keras=keras, **options))
        for index, options in enumerate([ONE, *several])
    ]
    assert curves[0][2]["loss"] < 0.95 * curves[0][0]["loss"]
    assert_same(curves)
