"""Fixtures of several quick tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fake_api import Fake, serving


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """An API server that answers as the test says."""
    with serving(tmp_path) as server:
        yield server
