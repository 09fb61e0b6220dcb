"""What tests/peers says of a cluster that lacks a peer, or has its definitions and no controller."""

from __future__ import annotations

import pytest

from tests.api.conftest import installed
from tests.api.plain_requests import Api
from tests.peers import found
from tests.peers.found import PEERS, MissingError


@pytest.fixture(autouse=True)
def no_peers(api: Api) -> None:
    for peer in PEERS.values():
        if api.request("GET", f"apis/{peer.group}").status != 404:
            pytest.skip(f"this cluster has {peer.name}")


def test_nothing_is_installed(api: Api, namespace: str) -> None:
    for peer in PEERS.values():
        with pytest.raises(MissingError) as error:
            peer.found(api, namespace, "image")
        assert str(error.value) == f"looked for the API group {peer.group}: the cluster does not have it"


def test_nobody_carries_the_definitions_out(
    api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "SECONDS", 1)
    with (
        installed(api, "jobset.x-k8s.io_jobsets"),
        pytest.raises(MissingError, match="no controller made its Job in 1 s; is JobSet's running"),
    ):
        PEERS["JobSet"].found(api, namespace, "image")
    with pytest.raises(MissingError, match="schedulerName volcano: no scheduler took it up in 1 s"):
        PEERS["Volcano"].ask(api, namespace, "image")
