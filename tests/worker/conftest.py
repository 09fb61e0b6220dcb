"""A run for each test; its processes end with the test, even after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
