"""An API server that is away for a few seconds, or knows a token no longer, in the middle of a command."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.api_proxy import ApiProxy, Request, proxy
from benchmarks.control_plane import TOKEN
from launcher.backends.base import Selection
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.preflight.needed_rights import RULES
from launcher.backends.patience import Patience
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import OBJECTS, RUN, SETTINGS, plan, skip_beside_a_kubelet, start_all
from tests.api.users import user

AWAY_SECONDS = 3.0


@pytest.fixture
def between(api: Api) -> Iterator[ApiProxy]:
    """A proxy of the test's own, in front of the API server."""
    skip_beside_a_kubelet()  # whose kubeconfig may have no certificate-authority in a file
    with proxy(api.kubeconfig) as made:
        yield made


def backend_behind(
    between: ApiProxy, directory: Path, messages: list[str] | None = None
) -> KubernetesBackend:
    tell = None if messages is None else messages.append
    return KubernetesBackend(
        str(between.kubeconfig(directory)), settings=SETTINGS, patience=Patience(tell=tell)
    )


def made(request: Request) -> bool:
    return request.is_write and request.method == "PATCH"


OUTAGES: dict[str, Callable[[ApiProxy], None]] = {
    "gone": ApiProxy.gone,
    "429": lambda between: between.answer(429),
    "500": lambda between: between.answer(500),
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_submission_goes_on_when_the_server_is_back(
    api: Api, namespace: str, tmp_path: Path, between: ApiProxy, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is away for longer than a server is asked that has not answered yet."""
    monkeypatch.setattr("launcher.backends.kubernetes.api_server.client.PATIENCE_SECONDS", AWAY_SECONDS / 3)
    monkeypatch.setattr("launcher.backends.kubernetes.api_server.client.TELL_SECONDS", AWAY_SECONDS / 3)
    back = threading.Timer(AWAY_SECONDS, between.back)

    def begin() -> None:
        OUTAGES[outage](between)
        back.start()

    between.after(made, begin)
    messages: list[str] = []
    backend_behind(between, tmp_path, messages).submit(plan(tmp_path, namespace), detach=True)
    back.join()
    jobs = {f"Job {job['metadata']['name']}" for job in api.list("Job", namespace)}
    assert jobs == {name for name in OBJECTS if name.startswith("Job")}
    assert len(messages) == 1
    assert re.search(r"; it is asked again; this is given up in 1[5-8]\d s$", messages[0])


def test_a_submission_waits_for_the_new_token_of_a_file(
    namespace: str, api: Api, tmp_path: Path, between: ApiProxy
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    other = json.loads(user(api, namespace, RULES, tmp_path).read_text())["users"][0]["user"]["token"]
    renewal = threading.Timer(AWAY_SECONDS, token.write_text, [other])

    def expires() -> None:
        between.expire(TOKEN)
        renewal.start()

    between.after(made, expires)
    backend = KubernetesBackend(str(between.kubeconfig(tmp_path, token)))
    backend.submit(plan(tmp_path, namespace), detach=True)
    renewal.join()
    assert len(api.list("Job", namespace)) == 4


def test_a_login_command_is_asked_again_when_its_token_is_refused(
    api: Api, namespace: str, tmp_path: Path, between: ApiProxy
) -> None:
    """Its credential names no time, or a time of another clock."""
    credentials = tmp_path / "credentials"
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    credentials.write_text(json.dumps({**kind, "status": {"token": TOKEN}}))
    other = json.loads(user(api, namespace, RULES, tmp_path).read_text())["users"][0]["user"]["token"]
    path = between.kubeconfig(tmp_path)
    document = json.loads(path.read_text())
    plugin = {"apiVersion": kind["apiVersion"], "command": "cat", "args": [str(credentials)]}
    document["users"][0]["user"] = {"exec": {**plugin, "interactiveMode": "Never"}}
    path.write_text(json.dumps(document))

    def expires() -> None:
        credentials.write_text(json.dumps({**kind, "status": {"token": other}}))
        between.expire(TOKEN)

    between.after(made, expires)
    KubernetesBackend(str(path)).submit(plan(tmp_path, namespace), detach=True)
    assert len(api.list("Job", namespace)) == 4


@pytest.mark.parametrize("at_the_end", [False, True], ids=["in the middle", "at the end"])
def test_streams_that_hang_are_asked_for_anew(
    api: Api,
    kubelet: Kubelet,
    tmp_path: Path,
    between: ApiProxy,
    monkeypatch: pytest.MonkeyPatch,
    at_the_end: bool,
) -> None:
    """Each line of a log is there once."""
    monkeypatch.setattr("launcher.backends.kubernetes.api_server.client.SILENCE_SECONDS", 2.0)
    if at_the_end:
        monkeypatch.setattr("launcher.backends.kubernetes.observe.following._HANGING_SECONDS", 0.5)
    else:
        monkeypatch.setattr("launcher.backends.kubernetes.observe.pod_logs.SILENCE_SECONDS", 2.0)
    KubernetesBackend(str(api.kubeconfig)).submit(plan(tmp_path, kubelet.namespace), detach=True)
    pods = kubelet.pending_all(5)
    (chief,) = (pod["metadata"]["name"] for pod in pods if pod["spec"]["hostname"] == "mnist-chief-0")
    with node(api, tmp_path, kubelet.namespace) as logs:
        for pod in pods:
            bind(api, pod, kubelet.namespace)
        logs.write(chief, "one")
        start_all(kubelet)

        def end() -> None:
            logs.write(chief, "three")
            logs.end(chief)
            for pod in pods:
                kubelet.end(pod, 0)

        def meanwhile() -> None:
            assert wait_for(lambda: all(map(between.has, (watches_pods, follows_log))))
            between.hang()
            logs.write(chief, "two")
            if at_the_end:
                end()

        helper = threading.Thread(target=meanwhile)
        helper.start()
        backend = backend_behind(between, tmp_path)
        lines = backend.logs(RUN, kubelet.namespace, Selection(("chief",)), follow=True)
        assert [next(lines).text for _ in range(2)] == ["one", "two"]
        if not at_the_end:
            end()
        assert [line.text for line in lines] == ["three"]
        helper.join()


def watches_pods(request: Request) -> bool:
    return request.is_stream and request.path.endswith("/pods")


def follows_log(request: Request) -> bool:
    return request.is_stream and request.path.endswith("/log")
