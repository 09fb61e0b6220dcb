"""What several of the quick tests need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fake_api import Fake, serving


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """An API server that does as the test says."""
    with serving(tmp_path) as server:
        yield server
