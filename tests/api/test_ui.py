"""`ui` of runs in a cluster: by a real API server, which may be away."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.api_proxy import ApiProxy, proxy
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.patience import Patience
from launcher.ui.reads import Place
from launcher.ui.server import Server
from launcher.ui.site import Site
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api
from tests.api.runs import RUN, plan
from worker.contract.records import Record

PROGRESS = {"epochs": 2, "step": 20, "steps": 20, "steps_per_second": 5.0, "epoch_end": True, "metrics": {}}


@pytest.fixture
def between(api: Api) -> Iterator[ApiProxy]:
    """A proxy of the test's own, in front of the API server."""
    with proxy(api.kubeconfig) as made:
        yield made


@contextmanager
def serving(kubeconfig: Path, seconds: float) -> Iterator[str]:
    """Serves the pages of this cluster; gives the address of the list."""
    patience = Patience(seconds)
    backend = KubernetesBackend(str(kubeconfig), patience=patience)
    with Server(0) as server:
        server.site = Site([Place("kubernetes", backend, patience)], f"/{server.token}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def until(url: str, words: str) -> str:
    deadline = time.monotonic() + 60
    while words not in (text := page(url)):
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
    return text


def record(time: float, event: str, **fields: object) -> str:
    return Record(event, "mnist-chief-0", time, fields).line()


def test_pages_of_a_cluster(
    api: Api,
    backend: KubernetesBackend,
    kubelet: Kubelet,
    tmp_path: Path,
    between: ApiProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("launcher.ui.reads._SECONDS", {"kubernetes": 0.2})
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    with node(api, tmp_path, space) as served, serving(between.kubeconfig(tmp_path), 1.0) as url:
        run = f"{url}runs/kubernetes/{space}/{RUN}"
        chief, *others = kubelet.pending_all(5)
        for pod in (chief, *others):
            bind(api, pod, space)
        until(url, f'href="/{url.split("/")[3]}/runs/kubernetes/{space}/{RUN}"')
        until(run, "waiting for a node")
        kubelet.start("chief")
        now = time.time()
        served.write(
            chief["metadata"]["name"], "<b>hello</b>", record(now, "progress", epoch=1, loss=0.5, **PROGRESS)
        )
        until(run, "<b>0.5000</b>")
        served.write(chief["metadata"]["name"], record(now + 1, "progress", epoch=2, loss=0.25, **PROGRESS))
        text = until(run, "0.2500")
        assert text.count("0.5000") >= 1, "the first epoch is still known"
        until(url, "epoch 2/2, step 20/20")
        until(f"{run}/logs/chief-0", "&lt;b&gt;hello&lt;/b&gt;")
        until(f"{url}curves?run=kubernetes/{space}/{RUN}", "<polyline")

        between.gone()
        text = until(run, f"Run {RUN} cannot be read now: ")
        assert "0.2500" in text, "what was known stays"
        until(url, "The list of the cluster cannot be read now: ")
        between.back()
        deadline = time.monotonic() + 60
        while "cannot be read" in page(run):
            assert time.monotonic() < deadline
            time.sleep(0.2)

        kubelet.end(chief, 0)
        until(run, "Succeeded")
        jobs = {job["metadata"]["name"] for job in api.list("Job", space)}
        assert len(jobs) == 4, "nothing is stopped or removed by who looks"
        # All the others are owned by this one.
        path = f"apis/batch/v1/namespaces/{space}/jobs/{RUN}-chief"
        assert api.request("DELETE", path, propagationPolicy="Background").status == 200
        assert "0.2500" in until(run, "was deleted. What is shown was known at")
    assert [request for request in between.asked if request.is_write] == []
