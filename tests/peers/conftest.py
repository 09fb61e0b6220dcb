"""Tests with the real queues, controllers and schedulers that runs may be handed to: Kueue, JobSet, Volcano,
scheduler-plugins' coscheduling.

The cluster is that of LAUNCHER_TEST_KUBECONFIG, and must have what tests/kind needs. A test is skipped where
its peer is missing; the last lines say what was found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import restricted_namespace
from tests.api.plain_requests import Api, wait_for
from tests.kind.conftest import IMAGE, runs, storage_class  # noqa: F401 - fixtures
from tests.kind.runs import SECONDS, Runs
from tests.peers.found import JOBSETS, KUEUE, PEERS, MissingError
from tests.peers.places import Places
from tests.peers.queues import Queues

_FOUND = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def api() -> Api:
    """The API server of the cluster."""
    if existing := os.environ.get("LAUNCHER_TEST_KUBECONFIG"):
        return Api(Path(existing))
    pytest.skip("no cluster with queues and gang schedulers: LAUNCHER_TEST_KUBECONFIG names one")


@pytest.fixture(scope="session")
def needs(api: Api, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Skips the test where the cluster lacks the peer of this name."""
    known: dict[str, tuple[bool, str]] = {}
    words = request.config.stash.setdefault(_FOUND, {})

    def look(name: str) -> tuple[bool, str]:
        with restricted_namespace(api) as namespace:
            try:
                return True, PEERS[name].found(api, namespace, IMAGE)
            except MissingError as reason:
                return False, str(reason)

    def need(name: str) -> None:
        if name not in known:
            known[name] = look(name)
            words[name] = ("found: " if known[name][0] else "not found: ") + known[name][1]
        if not known[name][0]:
            pytest.skip(f"{name}: {known[name][1]}")

    return need


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what the cluster has."""
    if findings := terminalreporter.config.stash.get(_FOUND, {}):
        terminalreporter.section("what the cluster has")
        for name, words in findings.items():
            terminalreporter.write_line(f"{name}: {words}")


@pytest.fixture
def queues(api: Api, needs: Callable[[str], None], runs: Runs) -> Iterator[Queues]:  # noqa: F811
    """Queues of Kueue's, in the namespace of the test's runs."""
    needs("Kueue")
    made = Queues(api, runs.namespace)
    try:
        yield made
    finally:
        # Kueue takes its finalizers off only while the queues are there.
        if api.request("GET", JOBSETS.format(runs.namespace)).status == 200:
            api.request("DELETE", JOBSETS.format(runs.namespace), propagationPolicy="Background")
        api.request(
            "DELETE", f"apis/batch/v1/namespaces/{runs.namespace}/jobs", propagationPolicy="Background"
        )
        workloads = f"{KUEUE}/namespaces/{runs.namespace}/workloads"
        gone = wait_for(lambda: not runs.pods() and not api.request("GET", workloads).body["items"], SECONDS)
        made.remove()
    assert gone, api.request("GET", workloads).body


@pytest.fixture
def places(api: Api) -> Iterator[Places]:
    """A resource of which a node has as many as the test says."""
    made = Places(api)
    try:
        yield made
    finally:
        made.remove()
