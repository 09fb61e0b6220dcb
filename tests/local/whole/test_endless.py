"""The code of `benchmarks.endless`."""

from __future__ import annotations

import random

import pytest

from benchmarks import endless
from benchmarks.recovery_runs import Shape
from tests.local.machine import linux_only

pytestmark = [linux_only, pytest.mark.thorough]


@pytest.mark.parametrize("keras", [2, 3])
@pytest.mark.parametrize("shape", endless.SHAPES, ids=[shape.name for shape in endless.SHAPES])
def test_kills_in_an_epoch_that_never_ends_cost_no_count(shape: Shape, keras: int) -> None:
    kills = endless.Kills(0.2, 12.0, keras == 3, random.Random(1))
    results = endless.train(shape, kills, keras)
    assert results.problem == ""
    assert sum(results.kills.values()) >= 1
    assert results.steps > 0
