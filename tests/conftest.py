"""Options and fixtures of all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the expected files anew (make golden)")


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    """Whether the expected files are to be written anew."""
    return bool(request.config.getoption("--renew"))
