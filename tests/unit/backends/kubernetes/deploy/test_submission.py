"""A submission to an API server that is busy, hangs up, or goes away: all of a run's objects are created, or
none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from launcher import plan_of_file
from launcher.backends.base import Plan
from launcher.backends.kubernetes.api_server.api_errors import UnreachableError
from launcher.backends.kubernetes.deploy.submission import Submission
from launcher.backends.patience import Patience
from launcher.errors import BackendError
from launcher.validation import loader
from tests.unit.fake_api import Fake, Handler, Query, hangs_up, says

CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: mnist}
spec:
  strategy: ParameterServer
  image: trainer:1
  command: [python, train.py]
  worker: {replicas: 2}
  ps: {}
"""
OBJECTS = ["mnist", "mnist", "mnist-chief", "mnist-config", "mnist-ps", "mnist-worker"]

Fault = Callable[[Handler, str, bool], bool]
"""A fault for a request. Its arguments are the request, the object's path and whether it is a dry run; it
returns whether it has answered.
"""


class Store:
    """The objects of an API server, with a fault before each request."""

    def __init__(self, fault: Fault) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self._fault = fault

    def __call__(self, handler: Handler, query: Query) -> None:
        path, dry = urlparse(handler.path).path, "dryRun" in query
        if not self._fault(handler, path, dry):
            self.answer(handler, query, path, dry)

    def answer(self, handler: Handler, query: Query, path: str, dry: bool) -> None:
        """Answers as a server does."""
        if path == "/version":
            says({"gitVersion": "v1.36.0"})(handler, query)
        elif handler.command == "PATCH":
            item = json.loads(handler.body)
            item["metadata"]["uid"] = path
            created = path not in self.kept
            if "merge-patch" in handler.headers["Content-Type"]:
                there = self.kept[path]
                item = {**there, "metadata": {**there["metadata"], **item["metadata"]}}
            if not dry:
                self.kept[path] = item
            says(item, 201 if created else 200)(handler, query)
        elif handler.command == "DELETE":
            removed = self.kept.pop(path, None)
            says({}, 200 if removed else 404)(handler, query)
        elif path.rsplit("/", 1)[1].startswith("mnist"):
            says(self.kept.get(path, {"message": "not found"}), 200 if path in self.kept else 404)(
                handler, query
            )
        else:
            says({"metadata": {"resourceVersion": "1"}, "items": []})(handler, query)

    @property
    def names(self) -> list[str]:
        """Returns the names of the stored objects."""
        return sorted(path.rpartition("/")[2] for path in self.kept)


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    (loaded,) = loader.load(str(path))
    return plan_of_file.plan(loaded, "a")


def test_a_busy_server_makes_everything_in_the_end(fake: Fake, planned: Plan) -> None:
    refused: set[tuple[str, bool]] = set()

    def busy(handler: Handler, path: str, dry: bool) -> bool:
        if handler.command != "PATCH" or (path, dry) in refused:
            return False
        refused.add((path, dry))
        says({"message": "too many requests"}, 429, Retry_After="0")(handler, {})
        return True

    store = Store(busy)
    fake.will(store)
    assert Submission(fake.client, planned).submit(replace=False) == ""
    assert store.names == OBJECTS


def test_an_answer_that_is_lost_is_asked_for_again(fake: Fake, planned: Plan) -> None:
    lost: set[str] = set()

    def broken(handler: Handler, path: str, dry: bool) -> bool:
        if handler.command != "PATCH" or dry or path in lost:
            return False
        lost.add(path)
        store.kept[path] = json.loads(handler.body)
        hangs_up(handler, {})
        return True

    store = Store(broken)
    fake.will(store)
    Submission(fake.client, planned).submit(replace=False)
    assert store.names == OBJECTS


@pytest.mark.parametrize("kept", [True, False], ids=["an answer is lost", "a request is lost"])
@pytest.mark.parametrize("kind", ["networkpolicies", "jobs/mnist-worker", "jobs/mnist-chief"])
def test_a_connection_that_breaks_half_way_leaves_nothing(
    fake: Fake, planned: Plan, kind: str, kept: bool
) -> None:
    def broken(handler: Handler, path: str, dry: bool) -> bool:
        if handler.command != "PATCH" or dry or kind not in path:
            return False
        if kept:
            item = json.loads(handler.body)
            item["metadata"]["uid"] = path
            store.kept[path] = item
        hangs_up(handler, {})
        return True

    store = Store(broken)
    fake.will(store)
    fake.client.patience = Patience(1.5)
    with pytest.raises(UnreachableError, match=r"the connection to the API server .* broke") as failed:
        Submission(fake.client, planned).submit(replace=False)
    assert failed.value.exit_code == 5
    assert "what had been made of the run was removed again" in failed.value.message
    assert store.names == []


def test_a_server_that_is_gone_half_way_says_what_to_remove(fake: Fake, planned: Plan) -> None:
    gone = False

    def leaves(handler: Handler, path: str, dry: bool) -> bool:
        nonlocal gone
        gone = gone or (handler.command == "PATCH" and not dry and "networkpolicies" in path)
        if gone:
            hangs_up(handler, {})
        return gone

    fake.will(Store(leaves))
    fake.client.patience = Patience(1.5)
    with pytest.raises(BackendError, match="what was made of the run could not be removed again") as failed:
        Submission(fake.client, planned).submit(replace=False)
    assert failed.value.hint.startswith("`python -m launcher delete mnist` removes it.")


def test_nothing_is_made_on_a_cluster_that_is_too_old(fake: Fake, planned: Plan) -> None:
    def old(handler: Handler, path: str, dry: bool) -> bool:
        if path != "/version":
            return False
        says({"gitVersion": "v1.30.4"})(handler, {})
        return True

    store = Store(old)
    fake.will(store)
    with pytest.raises(BackendError, match=r"runs Kubernetes 1\.30; this needs 1\.33 or newer") as refused:
        Submission(fake.client, planned).submit(replace=False)
    assert "podFailurePolicy (1.31), a Job's backoffLimitPerIndex (1.33)" in refused.value.hint
    assert store.names == []


def test_a_queue_that_kueue_gives_each_job_is_noticed(fake: Fake, tmp_path: Path) -> None:
    """A namespace with a LocalQueue called default has one: its webhook answers to dry runs too."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    (loaded,) = loader.load(str(path), ["spec.scheduling={queue: team-a}"])

    def webhook(handler: Handler, path: str, dry: bool) -> bool:
        if path == "/apis/kueue.x-k8s.io/v1beta2":
            says({"resources": [{"name": "workloads"}]})(handler, {})
            return True
        if path.endswith("/localqueues/team-a"):
            says({"metadata": {"name": "team-a", "uid": "1"}})(handler, {})
            return True
        if handler.command != "PATCH" or "/jobs/" not in path:
            return False
        item = json.loads(handler.body)
        item["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "default"
        says(item, 201)(handler, {})
        return True

    store = Store(webhook)
    fake.will(store)
    with pytest.raises(BackendError, match="Kueue would admit Job mnist-chief by itself") as error:
        Submission(fake.client, plan_of_file.plan(loaded, "a")).submit(replace=False)
    assert "a LocalQueue called default" in error.value.hint
    assert store.names == []
