"""The library against a real API server: a run from submit to delete."""

from __future__ import annotations

from pathlib import Path

import pytest

import launcher
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import CLUSTER, RUN


@pytest.fixture
def here(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "mnist.py").write_text("class Mnist: ...\n")
    return tmp_path


def test_a_run_from_submit_to_delete(here: Path, api: Api, kubelet: Kubelet) -> None:
    namespace = kubelet.namespace
    overrides = ["spec.evaluator=null", "spec.storage.reclaimPolicy=Retain"]
    run = launcher.submit(here / "cluster.yaml", namespace=namespace, overrides=overrides)
    assert (run.name, run.namespace) == (RUN, namespace)
    assert [each.name for each in launcher.runs(namespace=namespace)] == [RUN]

    kubelet.pending_all(4)
    run.suspend()
    assert all(job["spec"]["suspend"] for job in api.list("Job", namespace))
    run.resume()
    assert not any(job["spec"]["suspend"] for job in api.list("Job", namespace))

    with node(api, here, f"node-{namespace}") as logs:
        for role, count in (("chief", 1), ("worker", 2), ("ps", 1)):
            for pod in kubelet.pending(role, count):
                bind(api, pod, f"node-{namespace}")
            kubelet.start(role, count)
        assert run.wait(until="running", timeout=60).all_run
        (chief,) = kubelet.pods("chief")
        logs.write(chief["metadata"]["name"], "epoch 1")
        logs.end(chief["metadata"]["name"])
        assert [line.text for line in run.logs("chief")] == ["epoch 1"]
        assert {event.reason for event in run.events()} >= {"SuccessfulCreate"}
        for pod in kubelet.pods():
            kubelet.end(pod, 0)
        assert run.wait(timeout=60).phase == "Succeeded"

    same_run = launcher.find(RUN, namespace=namespace)
    assert f"PersistentVolumeClaim {RUN}-model" in same_run.delete()
    assert wait_for(lambda: not api.list("Job", namespace))
    with pytest.raises(launcher.NotFoundError, match="there is no run mnist"):
        run.wait()


def test_what_the_cluster_lacks(here: Path, api: Api) -> None:
    for what in (None, here / "cluster.yaml"):
        verdicts = {
            finding.subject: finding.verdict for finding in launcher.doctor(what, namespace="no-such")
        }
        assert verdicts["namespace"] == "missing"
    with pytest.raises(launcher.BackendError, match="no-such"):
        launcher.submit(here / "cluster.yaml", namespace="no-such")
