"""Options and fixtures of all tests."""

from __future__ import annotations

import hypothesis
import pytest

# No test fails for being slow on a busy machine, and a commit is judged by the same inputs each time;
# `--hypothesis-profile=searching` tries others.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.register_profile("searching", deadline=None, print_blob=True)
hypothesis.settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the expected files anew (make golden)")


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    """Whether the expected files are to be written anew."""
    return bool(request.config.getoption("--renew"))
