"""Tests on a cluster with nodes, where pods run.

The cluster is that of LAUNCHER_TEST_KUBECONFIG. With LAUNCHER_TEST_KIND=1 (`make test-kind`), kind makes one.
Where there is neither, these tests are skipped and say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.conftest import restricted_namespace
from tests.api.plain_requests import PATHS, Api
from tests.kind.runs import Runs
from tests.kind.servers import ClusterError, claim_class, kind_cluster

IMAGE = os.environ.get("LAUNCHER_TEST_IMAGE", "tf-launcher-worker:dev")
PLAIN_IMAGE = os.environ.get("LAUNCHER_TEST_PLAIN_IMAGE", "")
LAUNCHER_IMAGE = os.environ.get("LAUNCHER_TEST_LAUNCHER_IMAGE", "tf-launcher:dev")


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The API server of a cluster that has the worker image."""
    if existing := os.environ.get("LAUNCHER_TEST_KUBECONFIG"):
        yield Api(Path(existing))
    elif os.environ.get("LAUNCHER_TEST_KIND"):
        images = [image for image in (IMAGE, LAUNCHER_IMAGE, PLAIN_IMAGE) if image]
        try:
            with kind_cluster(tmp_path_factory.mktemp("kind") / "kubeconfig", images) as kubeconfig:
                yield Api(kubeconfig)
        except ClusterError as error:
            pytest.exit(f"no cluster to test on: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    else:
        pytest.skip("no cluster with nodes: `make test-kind` makes one, LAUNCHER_TEST_KUBECONFIG names one")


@pytest.fixture(scope="session")
def storage_class(api: Api) -> str:
    """What claims must name: "" where the cluster has a default StorageClass."""
    answer = api.request("GET", "apis/storage.k8s.io/v1/storageclasses")
    assert answer.status == 200, answer.body
    try:
        return claim_class(answer.body["items"])
    except ClusterError as error:
        pytest.exit(f"no cluster to test on: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture
def runs(api: Api, storage_class: str, tmp_path: Path) -> Iterator[Runs]:
    """The command line in a namespace of its own, which enforces Pod Security "restricted"."""
    with restricted_namespace(api) as namespace:
        yield Runs(api, namespace, IMAGE, tmp_path, storage_class)
        # The Jobs first. A namespace ends its pods before its Jobs, and a Job with backoffLimitPerIndex holds
        # on to a failed pod until it has replaced it, which it may not do there any more: all would stay.
        api.request("DELETE", PATHS["Job"].format(namespace), propagationPolicy="Background")
