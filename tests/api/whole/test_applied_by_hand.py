"""A run made by `render | kubectl apply`, whose objects have no owner, works like any other."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.control_plane import DEFAULT_ASSETS
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.cli import parser
from launcher.plan import serialization
from launcher.status import Phase
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, Follower, plan, role_messages, start_all


@pytest.fixture
def applied(api: Api, kubelet: Kubelet, tmp_path: Path) -> None:
    directory = os.environ.get("KUBEBUILDER_ASSETS", str(DEFAULT_ASSETS))
    kubectl = shutil.which("kubectl") or shutil.which("kubectl", path=directory)
    if kubectl is None:
        pytest.skip(f"no kubectl on the path nor in {directory}")
    subprocess.run(
        [kubectl, "apply", "-f", "-"],
        input=serialization.as_yaml(plan(tmp_path, kubelet.namespace).objects).encode(),
        env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
        check=True,
        capture_output=True,
        timeout=60,
    )


@pytest.mark.usefixtures("applied")
def test_it_is_seen_read_and_deleted(
    api: Api,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    space = kubelet.namespace
    where = [RUN, "-n", space, "--backend", "kubernetes"]
    with node(api, tmp_path, space) as served:
        (worker, _) = kubelet.pending("worker", 2)
        bind(api, worker, space)
        served.write(worker["metadata"]["name"], "a step is done")
        start_all(kubelet)
        assert parser.main(["status", *where]) == 0
        shown = capsys.readouterr().out
        assert [line.split()[0] for line in shown.splitlines() if "Running" in line] == [
            "chief",
            "worker",
            "ps",
            "evaluator",
        ]
        served.end(worker["metadata"]["name"])
        # Without a kubelet, only a pod that has ended can be removed from its node.
        kubelet.end(worker, 0)
        assert parser.main(["logs", *where, "--role", "worker", "--index", "0"]) == 0
        assert capsys.readouterr().out.split() == ["worker-0", "|", "a", "step", "is", "done"]
        assert parser.main(["list", "-n", space, "--backend", "kubernetes"]) == 0
        assert "1 chief, 2 worker, 1 ps, 1 evaluator" in capsys.readouterr().out
        assert parser.main(["delete", *where]) == 0
    assert "what it has trained stays, on PersistentVolumeClaim mnist-model" in capsys.readouterr().out
    for kind in ("Job", "Pod", "Service", "NetworkPolicy"):
        assert api.list(kind, space) == [], kind
    assert [item["metadata"]["name"] for item in api.list("ConfigMap", space)] in ([], ["kube-root-ca.crt"])


@pytest.mark.usefixtures("applied")
def test_what_is_left_at_its_end_is_stopped(backend: KubernetesBackend, kubelet: Kubelet) -> None:
    follower = Follower(backend.follow(RUN, kubelet.namespace))
    start_all(kubelet)
    kubelet.end(kubelet.pods("chief")[0], 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    stopped = {role for role, message in role_messages(end).items() if message.startswith("RunEnded: ")}
    assert stopped == {"worker", "ps", "evaluator"}
    assert wait_for(lambda: [pod["spec"]["hostname"] for pod in kubelet.pods()] == ["mnist-chief-0"])
