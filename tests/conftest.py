"""Options and fixtures of all tests."""

from __future__ import annotations

import hypothesis
import pytest

# No test fails for being slow on a busy machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the expected files anew (make golden)")


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    """Whether the expected files are to be written anew."""
    return bool(request.config.getoption("--renew"))
