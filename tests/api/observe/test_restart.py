"""A run is followed through a restart of the real API server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.control_plane import UnavailableError, control_plane
from launcher.status import Phase
from tests.api.conftest import restricted_namespace
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api
from tests.api.runs import RUN, Follower, backend_for, plan, task


@pytest.fixture(scope="module")
def own_api(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Api, list[subprocess.Popen[bytes]]]]:
    """A control plane for this module's tests only, and the processes that they start for it."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        with control_plane(tmp_path_factory.mktemp("own-control-plane")) as plane:
            yield Api(plane.kubeconfig), started
    except UnavailableError as reason:
        pytest.skip(str(reason))
    finally:
        for process in started:
            process.kill()
            process.wait()


def api_server(kubeconfig: Path) -> tuple[int, list[str]]:
    """Returns the id and the command line of the API server's process."""
    port = kubeconfig.read_text().split("https://127.0.0.1:")[1].split('"')[0]
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode().split("\0")[:-1]
        except (OSError, ValueError):
            continue
        if command and command[0].endswith("kube-apiserver") and f"--secure-port={port}" in command:
            return int(entry.name), command
    pytest.skip("no /proc in which to find the API server")


def test_a_restart_of_the_api_server(
    own_api: tuple[Api, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    api, started = own_api
    process, command = api_server(api.kubeconfig)
    backend = backend_for(api)
    with restricted_namespace(api) as namespace:
        kubelet = Kubelet(api, namespace)
        backend.submit(plan(tmp_path, namespace), detach=True)
        follower = Follower(backend.follow(RUN, namespace))
        kubelet.start("chief")
        follower.until(lambda status: status.primary.ready == 1)

        os.kill(process, signal.SIGKILL)
        follower.until(lambda _: any("is looked for again" in text for text in follower.notices))
        with (tmp_path / "kube-apiserver.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        follower.until(lambda _: "the API server answers again" in follower.notices)
        # The Job controller takes some time to come back.
        kubelet.start("worker", 2)
        follower.until(lambda status: task(status, "mnist-worker-1").phase is Phase.RUNNING)
        kubelet.end(kubelet.pods("chief")[0], 0)
        status = follower.until(lambda status: status.phase is Phase.SUCCEEDED)
        assert task(status, "mnist-chief-0").restarts == 0
        assert follower.rest().ended
