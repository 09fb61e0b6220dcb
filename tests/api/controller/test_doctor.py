"""`doctor --controller` on a real API server: what it says of a controller that works, and of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml

from launcher.backends.kubernetes.preflight import needed_rights
from launcher.cli import parser
from launcher.controller import LEASE, doctor
from launcher.controller.kubeflow_operator import LEASE as OPERATORS
from tests.api import users
from tests.api.conftest import ROOT, installed, restricted_namespace
from tests.api.plain_requests import Api, wait_for

FOLDER = ROOT / "manifests" / "controller"
RBAC = "apis/rbac.authorization.k8s.io/v1/namespaces/{}"
LABELS = {"app.kubernetes.io/part-of": "tf-launcher", "app.kubernetes.io/component": "controller"}
LOOKS = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}]

Doctor = Callable[[], tuple[int, dict[str, str], str]]


@pytest.fixture
def examined(
    api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Doctor:
    """Runs the command; returns its exit code, the verdict of each subject, and what it prints."""
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))

    def run() -> tuple[int, dict[str, str], str]:
        code = parser.main(["doctor", "--controller", "-n", namespace])
        out = capsys.readouterr().out
        lines = [line for line in out.partition("\n\n")[0].splitlines() if not line.startswith(" ")]
        return code, {line[9:].split("  ")[0]: line.split()[0] for line in lines}, out

    return run


@pytest.fixture(scope="module")
def kind(api: Api) -> Iterator[None]:
    with installed(api, FOLDER / "crd.yaml"):
        yield


@pytest.fixture
def controller(api: Api, kind: None, namespace: str) -> None:
    """One that works, for one namespace: its pods are only said to be ready, and its lease to be renewed."""
    (deployment,) = yaml.safe_load_all((FOLDER / "deployment.yaml").read_text())
    deployment["metadata"]["labels"] = LABELS
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["args"] += ["--namespace", namespace]
    assert api.create(deployment, namespace).status == 201
    account = {"metadata": {"name": "tf-launcher-controller"}}
    assert api.request("POST", f"api/v1/namespaces/{namespace}/serviceaccounts", account).status == 201
    subject = {"kind": "ServiceAccount", "name": "tf-launcher-controller", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "controller"}
    rules = [*needed_rights.of_controller(), *needed_rights.ELECTION]
    for path, item in (
        ("roles", {"rules": rules}),
        ("rolebindings", {"roleRef": reference, "subjects": [subject]}),
    ):
        item = {"metadata": {"name": "controller"}, **item}
        assert api.request("POST", f"{RBAC.format(namespace)}/{path}", item).status == 201
    lease(api, namespace, LEASE)
    assert wait_for(lambda: len(api.list("Pod", namespace)) == 2)
    for pod in api.list("Pod", namespace):
        condition = {"type": "Ready", "status": "True"}
        path = f"api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        status = {"status": {"phase": "Running", "conditions": [condition]}}
        assert api.patch(path, status, "application/merge-patch+json").status == 200


def lease(api: Api, namespace: str, name: str, seconds: float = 0) -> None:
    renewed = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    spec = {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "renewTime": renewed.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    path = f"apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    api.request("DELETE", f"{path}/{name}")
    assert api.request("POST", path, {"metadata": {"name": name}, "spec": spec}).status == 201


@pytest.mark.usefixtures("controller")
def test_one_that_works_and_what_may_become_of_it(
    api: Api, namespace: str, examined: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for(lambda: examined()[1].get("controller") == "ok")
    code, verdicts, out = examined()
    assert set(verdicts.values()) == {"ok"}, out
    assert (code, out.splitlines()[-1]) == (0, "the controller works")
    assert f"tf-launcher-controller in namespace {namespace}: 2 of 2 pods are ready" in out
    assert "one leads, and renewed tf-launcher-controller" in out

    lease(api, namespace, LEASE, 60)
    code, verdicts, out = examined()
    assert (code, verdicts["lease"]) == (5, "missing")
    assert "nobody leads: one leads, and renewed tf-launcher-controller 6" in out
    assert out.splitlines()[-1] == "the controller does not work: see lease"
    lease(api, namespace, LEASE)

    lease(api, namespace, OPERATORS)
    assert examined()[1]["operator"] == "missing"
    lease(api, namespace, OPERATORS, 120)
    assert examined()[1]["operator"] == "ok"

    item = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": {"tfReplicaSpecs": {"Worker": {}}}}
    jobs = f"apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs"
    for name, policy in (("mine", {}), ("theirs", {"managedBy": "kueue.x-k8s.io/multikueue"})):
        spec = {**item["spec"], "runPolicy": policy}  # type: ignore[dict-item]
        made = {**item, "metadata": {"name": name}, "spec": spec}
        assert api.request("POST", jobs, made).status == 201
    assert examined()[1]["TFJobs"] == "ok", "it is young"
    monkeypatch.setattr(doctor, "_TAKEN_SECONDS", -60.0)
    code, verdicts, out = examined()
    assert (code, verdicts["TFJobs"]) == (0, "warning")
    assert f"nobody has taken {namespace}/mine\n" in out

    kept = [
        rule for rule in needed_rights.of_controller() if rule["resources"] not in (["jobs"], ["jobsets"])
    ]
    path = f"{RBAC.format(namespace)}/roles/controller"
    assert api.patch(path, {"rules": kept}, "application/merge-patch+json").status == 200
    assert wait_for(lambda: examined()[1].get("right to jobs") == "missing")
    code, verdicts, out = examined()
    who = f"system:serviceaccount:{namespace}:tf-launcher-controller"
    assert f"{who} may not get, list, create, patch, delete, watch in namespace {namespace}" in out
    assert f"{who} may not get, create, update in namespace {namespace}" in out
    assert (code, verdicts["right to jobsets"]) == (5, "warning")
    assert "Without it, a run with a queue or a schedulingPolicy is refused." in out


@pytest.mark.usefixtures("controller")
def test_two_for_one_namespace_are_named(api: Api, namespace: str, examined: Doctor) -> None:
    (deployment,) = yaml.safe_load_all((FOLDER / "deployment.yaml").read_text())
    deployment["metadata"] |= {"labels": LABELS, "name": "for-all"}
    with restricted_namespace(api) as home:
        assert api.create(deployment, home).status == 201
        assert wait_for(lambda: examined()[1].get("controllers") == "warning")
        assert f"for-all in namespace {home}" in (out := examined()[2])
        assert f"both train the TFJobs of namespace {namespace}\n" in out


@pytest.mark.usefixtures("kind")
def test_where_there_is_none(
    api: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examined: Doctor
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(users.user(api, namespace, LOOKS, tmp_path)))
    assert wait_for(lambda: examined()[1]["controller"] == "missing")
    code, verdicts, out = examined()
    assert (code, verdicts["TFJob"]) == (5, "ok"), out
    assert out.splitlines()[-1] == "the controller does not work: see controller"


@pytest.mark.usefixtures("controller")
def test_who_may_see_little_is_told_so(
    api: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examined: Doctor
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(users.user(api, namespace, LOOKS, tmp_path)))
    wait_for(lambda: examined()[1]["controller"] == "ok")
    code, verdicts, out = examined()
    assert code == 0, out
    assert {subject for subject, verdict in verdicts.items() if verdict == "unknown"} == {
        "lease", "operator", "rights", "TFJobs",
    }  # fmt: skip


def test_it_takes_no_file(examined: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    assert parser.main(["doctor", "--controller", "--role"]) == 2
    assert "--controller: goes neither with a file nor with --role" in capsys.readouterr().err
