"""A run for each test; its processes end with the test, even after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.s3_server import FaultyProxy, S3Server, faulty, s3_server
from tests.worker.cluster import Cluster

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """`Cluster` under the test's directory."""
    clusters: list[Cluster] = []

    def make(**options: object) -> Cluster:
        cluster = Cluster(tmp_path, **options)  # type: ignore[arg-type]
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.stop()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server."""
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture
def s3_proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """The way to the S3 server that this process and its tasks take, with faults of the test's choice."""
    with faulty(s3) as proxy:
        for name, value in s3.environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        yield proxy
