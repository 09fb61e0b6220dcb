"""The code of `make soak` on an API server: the test plays the pods of runs, and no object stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import soak_runs
from benchmarks.soak_cluster import Cluster, Player
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.connection import connect
from tests.api.plain_requests import Api
from tests.api.runs import skip_beside_a_kubelet


@pytest.mark.parametrize("kind", ["task killed", "deleted"])
def test_no_object_is_left(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    skip_beside_a_kubelet()
    environment = {"KUBECONFIG": str(api.kubeconfig), "XDG_STATE_HOME": str(tmp_path)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    connection = connect()
    player = Player(Client(connection), connection.namespace)
    try:
        place = Cluster(Client(connection), connection.namespace, player, "", environment)
        outcome = soak_runs.soak(place, 1, kind, is_training=False)
        assert (outcome.problem, outcome.phase) == ("", place.ends[kind][0])
        assert place.left() == {"processes": [], "objects": []}
    finally:
        player.stop()
