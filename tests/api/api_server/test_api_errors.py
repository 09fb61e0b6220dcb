"""A cluster that cannot be reached, for each cause: one message that says what to do."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml

from launcher.backends.base import EVERYONE
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.preflight.needed_rights import RULES
from launcher.errors import BackendError, NotFoundError
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, backend_for, plan
from tests.api.users import kubeconfig, user


def refused(backend: KubernetesBackend, namespace: str = "default") -> BackendError:
    with pytest.raises(BackendError) as error:
        backend.status(RUN, namespace)
    assert error.value.hint
    return error.value


def test_the_least_role_is_enough(api: Api, namespace: str, tmp_path: Path) -> None:
    backend = KubernetesBackend(str(user(api, namespace, RULES, tmp_path)))
    planned = plan(tmp_path, namespace)
    # The API server knows a Role only after a moment.
    assert wait_for(lambda: len(api.request("GET", "version").body) > 0)
    assert len(backend.dry_run(planned)) == 9
    backend.submit(planned, detach=True)
    backend.submit(plan(tmp_path, namespace, "spec.runPolicy.ttlSecondsAfterFinished=60"), detach=True)
    assert next(backend.follow(RUN, namespace)).status.run == RUN
    assert [status.run for status in backend.runs(None)] == [RUN]
    assert list(backend.logs(RUN, namespace, EVERYONE, follow=False)) == []
    backend.suspend(RUN, namespace)
    backend.resume(RUN, namespace)
    backend.stop(RUN, namespace, at_once=True)
    backend.delete(RUN, namespace)
    with pytest.raises(NotFoundError):
        backend.status(RUN, namespace)


def test_no_right(api: Api, namespace: str, tmp_path: Path) -> None:
    error = refused(KubernetesBackend(str(user(api, namespace, [], tmp_path))), namespace)
    name = f"system:serviceaccount:{namespace}:user"
    assert error.message == f"{name} may not list jobs.batch in namespace {namespace}"
    assert f"kubectl auth can-i list jobs.batch -n {namespace}" in error.hint


def test_no_right_to_see_a_run_that_is_followed(api: Api, namespace: str, tmp_path: Path) -> None:
    backend_for(api).submit(plan(tmp_path, namespace), detach=True)
    jobs_only = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]
    backend = KubernetesBackend(str(user(api, namespace, jobs_only, tmp_path)))
    with pytest.raises(BackendError, match="may not list pods in namespace") as error:
        next(backend.follow(RUN, namespace))
    assert error.value.hint.startswith("The run is still running.")


def test_an_expired_token(api: Api, tmp_path: Path) -> None:
    error = refused(KubernetesBackend(str(kubeconfig(api, tmp_path, token="expired"))))
    assert "does not know who you are: Unauthorized" in error.message
    assert "log in again" in error.hint


def test_no_such_namespace(api: Api, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="there is no namespace nowhere in the cluster") as error:
        backend_for(api).submit(plan(tmp_path, "nowhere"), detach=True)
    assert "kubectl create namespace nowhere" in error.value.hint


def test_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    error = refused(KubernetesBackend())
    assert error.message == f"there is no kubeconfig: {tmp_path / 'nothing'} does not exist"
    assert "--backend local" in error.hint


def test_the_kubeconfig_of_the_environment(
    api: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_path = kubeconfig(api, tmp_path, namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'nothing'}:{config_path}")
    backend = KubernetesBackend()
    assert backend.namespace == namespace
    assert backend.runs(namespace) == []


def test_an_unknown_context(api: Api) -> None:
    error = refused(KubernetesBackend(str(api.kubeconfig), "elsewhere"))
    assert error.message == f"there is no context elsewhere in {api.kubeconfig}"
    assert "There are: " in error.hint


@pytest.mark.parametrize("text", ["{", "[]", "clusters: 3\n", "", "current-context: gone\n"])
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    assert str(path) in refused(KubernetesBackend(str(path))).message


def test_a_login_command_that_fails(api: Api, tmp_path: Path) -> None:
    document = yaml.safe_load(api.kubeconfig.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"}
    document["users"][0]["user"] = {"exec": plugin}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    error = refused(KubernetesBackend(str(path)))
    assert "the login command false failed with exit code 1" in error.message


def test_nobody_listens(api: Api, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{free.getsockname()[1]}"
        error = refused(KubernetesBackend(str(kubeconfig(api, tmp_path, server=server))))
    assert error.message == f"nobody answers at the API server {server}: connection refused"
    assert str(tmp_path / "kubeconfig") in error.hint


def test_another_cluster_s_certificate(api: Api, tmp_path: Path) -> None:
    document = yaml.safe_load(api.kubeconfig.read_text())
    document["clusters"][0]["cluster"].pop("certificate-authority", None)
    document["clusters"][0]["cluster"].pop("certificate-authority-data", None)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    error = refused(KubernetesBackend(str(path)))
    assert "no secure connection to the API server" in error.message
    assert "clock" in error.hint


def test_a_field_that_the_cluster_does_not_take(api: Api, namespace: str, tmp_path: Path) -> None:
    wrong = plan(tmp_path, namespace, "spec.worker.podTemplate.spec.runtimeClassName=A_B")
    with pytest.raises(BackendError, match=r"the cluster refused to patch jobs\.batch mnist-worker") as error:
        backend_for(api).submit(wrong, detach=True)
    assert "runtimeClassName" in error.value.message


def test_a_namespace_that_is_being_deleted(api: Api, namespace: str, tmp_path: Path) -> None:
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
    }
    assert api.create(held, namespace).status == 201
    assert api.request("DELETE", f"api/v1/namespaces/{namespace}").status == 200
    with pytest.raises(BackendError, match=f"namespace {namespace} .* is being deleted") as error:
        backend_for(api).submit(plan(tmp_path, namespace), detach=True)
    assert "metadata.namespace" in error.value.hint
    path = f"api/v1/namespaces/{namespace}/configmaps/held"
    api.patch(path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
