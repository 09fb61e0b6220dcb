"""Options and fixtures of all tests."""

from __future__ import annotations

import re
import signal
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from launcher import redaction

_TOGETHER = re.compile(
    r"::test_trains_or_is_refused\[([^/]+)/|(/test_(?:batch_division|kueue|live_view)\.py)::"
)
"""Matches tests that share what takes long to make: those of tests/worker/matrix/test_shapes.py with the same
strategy, and those of a file.
"""
_WITH_API_SERVER = {
    "tests/api/plan/": "first",
    "tests/api/whole/": "first",
    "tests/chart/": "first",
    "tests/api/controller/": "second",
    "tests/api/observe/": "second",
    "tests/api/run_end/": "second",
    "tests/api/state/": "second",
    "tests/api/": "third",
}
"""The API server that the tests of a folder share. A control plane takes 10 s of a core to start, and more
while it runs, so not each process of pytest's has one. The tests of each take about as long.
"""

# A shell gives what it starts in the background a SIGINT that is ignored, and so do the tests to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test fails because a busy machine is slow, and each commit is tested with the same inputs;
# `--hypothesis-profile=searching` tries others.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("searching", deadline=None, print_blob=True, max_examples=400)
hypothesis.settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the expected files anew (make golden)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Has the marker `by_day` choose some of a test's parameter sets for `make test` and `make runtime`."""
    ids: dict[str, set[str]] = {}
    chosen: dict[str, set[str]] = {}
    for item in items:
        mark = item.get_closest_marker("by_day")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        test, parameter_id = item.nodeid.removesuffix(f"[{item.callspec.id}]"), item.callspec.id
        runtime = mark.kwargs.get("runtime")
        ids.setdefault(test, set()).add(parameter_id)
        chosen[test] = {*mark.args, *(runtime or ())}
        if parameter_id not in mark.args:
            item.add_marker(pytest.mark.thorough)
            if runtime is not None and parameter_id not in runtime:
                item.add_marker(pytest.mark.nightly)
    if config.getoption("lf", False) or any("::" in argument for argument in config.args):
        return  # not all are collected
    for test, known in ids.items():
        if unknown := chosen[test] - known:
            raise pytest.UsageError(f"{test}: by_day names no parameter set: {', '.join(sorted(unknown))}")


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Schedules each test by itself, but those that share processes one after the other.

    The marker of pytest-xdist 3.8 for that, xdist_group, has no effect with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        for folder, server in _WITH_API_SERVER.items():
            if nodeid.startswith(folder):
                return f"{server} API server"
        match = _TOGETHER.search(nodeid)
        return match[1] or match[2] if match else nodeid


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Reports in red that no test used an API server: one line among many skipped tests would be
    overlooked.
    """
    skipped = [
        report for report in terminalreporter.stats.get("skipped", ()) if "tests/api/" in report.nodeid
    ]
    reasons = {report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)}
    reasons = {reason for reason in reasons if "KUBEBUILDER_ASSETS" in reason and "scheduler" not in reason}
    if reasons:
        terminalreporter.section("no API server has seen this code", red=True)
        terminalreporter.write_line(f"{len(skipped)} tests of tests/api did not run: {'; '.join(reasons)}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """For `pytest -n`."""
    return _Together(config, log)


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that another test has read is not redacted in this one."""
    monkeypatch.setattr(redaction, "_secrets", set())
    monkeypatch.setattr(redaction, "_pattern", None)


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    """Returns whether the expected files are to be rewritten."""
    return bool(request.config.getoption("--renew"))
