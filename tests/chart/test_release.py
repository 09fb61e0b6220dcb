"""Releases on a real API server, with only the rights of the launcher's service account."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.validation import loader
from tests.api import installed_controller, users
from tests.api.conftest import installed
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import PATHS, Api, wait_for
from tests.chart.helm import CHART, CI_VALUES, find
from tests.chart.releases import FULLNAME, RELEASE, Release

VALUES = CHART / "ci" / "one-device-values.yaml"
PRIMARY = "one-device-chief"
DEFINITION = "apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
OURS = (f"app.kubernetes.io/instance={RELEASE}", "tf-launcher.dev/run=one-device", "owner=helm")


@pytest.fixture
def release(api: Api, namespace: str, tmp_path: Path) -> Iterator[Release]:
    if "LAUNCHER_TEST_KUBECONFIG" in os.environ:
        pytest.skip("these tests play the kubelet, and the cluster of LAUNCHER_TEST_KUBECONFIG has one")
    made = Release(api, find(tmp_path / "helm", api.kubeconfig), namespace, tmp_path)
    yield made
    made.close()


@pytest.fixture
def kubelet(api: Api, namespace: str) -> Kubelet:
    return Kubelet(api, namespace)


def train(kubelet: Kubelet, exit_code: int = 0) -> None:
    (pod,) = kubelet.start("chief")
    kubelet.end(pod, exit_code)


def uid(release: Release) -> str | None:
    job = release.job(PRIMARY)
    return str(job["metadata"]["uid"]) if job is not None else None


def owners(item: Any) -> list[str]:
    return [f"{owner['kind']}/{owner['name']}" for owner in item["metadata"].get("ownerReferences", ())]


@pytest.mark.by_day("custom-values", "parameter-server-values", "tpu-values", "multi-worker-mirrored-values")
@pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.stem)
def test_the_server_takes_it(release: Release, api: Api, values: Path, tmp_path: Path) -> None:
    """The server validates fields strictly, and the namespace enforces Pod Security "restricted"."""
    plurals = {
        "ConfigMap": "api/v1/namespaces/{}/configmaps",
        "Job": "apis/batch/v1/namespaces/{}/jobs",
        "Pod": "api/v1/namespaces/{}/pods",
        "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
        "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
        "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    }
    helm = find(tmp_path)
    account = f"api/v1/namespaces/{release.namespace}/serviceaccounts"
    assert api.request("POST", account, {"metadata": {"name": FULLNAME}}).status == 201
    for item in helm.template("-f", values, "--namespace", release.namespace):
        if item["kind"] == "ServiceAccount":
            continue
        path = plurals[item["kind"]].format(release.namespace)
        answer = api.request("POST", path, item, fieldValidation="Strict", dryRun="All")
        assert (answer.status, answer.warnings) == (201, ""), answer.body


def test_a_run_to_its_end(release: Release, kubelet: Kubelet) -> None:
    """The launcher ends as the run does. A restarted launcher reports the same end, and does not
    train again.
    """
    notes = release.done("install", "-f", VALUES)
    job = next(
        job for job in release.api.list("Job", release.namespace) if FULLNAME in job["metadata"]["name"]
    )
    assert f"kubectl logs --namespace {release.namespace} --follow job/{job['metadata']['name']}" in notes
    launcher = release.launch()
    train(kubelet)
    done = launcher.end()
    assert done.code == 0, done.error
    assert "run one-device has succeeded" in done.out
    primary = release.job(PRIMARY)
    assert owners(primary) == [f"ConfigMap/{FULLNAME}", f"Job/{job['metadata']['name']}"]
    again = release.launch().end()
    assert again.code == 0, again.error
    assert "run one-device is there already, and is what was submitted" in again.error
    assert uid(release) == primary["metadata"]["uid"]


def test_a_run_that_fails(release: Release, kubelet: Kubelet) -> None:
    """The launcher fails too, also when it is restarted; the launcher of an upgrade tries again."""
    release.done("install", "-f", VALUES)
    launcher = release.launch()
    train(kubelet, 70)
    done = launcher.end()
    assert (done.code, "run one-device has failed" in done.out) == (1, True), done
    first = uid(release)
    assert release.launch().end().code == 1
    assert uid(release) == first
    release.done("upgrade", "-f", VALUES, "--set", "podAnnotations.again=yes")
    launcher = release.launch()
    assert wait_for(lambda: uid(release) not in (None, first))
    train(kubelet)
    assert launcher.end().code == 0


def test_upgrade_and_rollback(release: Release, kubelet: Kubelet) -> None:
    """A running run is replaced, and its claim with the checkpoints stays."""

    def claim() -> str:
        (item,) = release.api.list("PersistentVolumeClaim", release.namespace)
        return str(item["metadata"]["uid"])

    def launchers() -> list[str]:
        jobs = release.api.list("Job", release.namespace)
        return [job["metadata"]["name"] for job in jobs if job["metadata"]["name"].startswith(FULLNAME)]

    release.done("install", "-f", VALUES)
    (first_job,) = launchers()
    old = release.launch()
    kubelet.start("chief")
    first, kept = uid(release), claim()
    release.done("upgrade", "-f", VALUES, "--set", "spec.program.parameters.epochs=9")
    # The old launcher is gone; the run continues until the new launcher has come.
    assert wait_for(lambda: len(launchers()) == 1 and first_job not in launchers())
    old.stop()
    assert wait_for(lambda: owners(release.job(PRIMARY)) == [f"ConfigMap/{FULLNAME}"])
    assert uid(release) == first

    new = release.launch()
    assert wait_for(lambda: uid(release) not in (None, first))
    second = uid(release)
    assert claim() == kept
    # A change of the launcher alone leaves the run unchanged.
    values = ("--set", "spec.program.parameters.epochs=9", "--set", "resources.limits.memory=1Gi")
    release.done("upgrade", "-f", VALUES, *values)
    new.stop()
    newer = release.launch()
    train(kubelet)
    done = newer.end()
    assert (done.code, uid(release)) == (0, second), done
    assert "is there already" in done.error

    release.done("rollback", "1")
    assert launchers() == [first_job] or wait_for(lambda: launchers() == [first_job])
    last = release.launch()
    assert wait_for(lambda: uid(release) not in (None, second))
    assert claim() == kept
    train(kubelet)
    assert last.end().code == 0


def test_uninstall_in_the_middle(release: Release, kubelet: Kubelet) -> None:
    release.done("install", "-f", VALUES)
    launcher = release.launch()
    kubelet.start("chief")
    assert "jobs/one-device-chief" in release.left(*OURS)
    release.done("uninstall")
    launcher.stop()
    assert wait_for(lambda: not release.left(*OURS)), release.left(*OURS)


def test_the_claim_is_kept(release: Release, kubelet: Kubelet) -> None:
    """The claim stays unless the file says otherwise; the notes say how to remove it."""
    notes = release.done("install", "-f", VALUES, "--set", "spec.storage.reclaimPolicy=Retain")
    selector = "--selector tf-launcher.dev/run=one-device"
    assert f"kubectl get pvc --namespace {release.namespace} {selector}" in notes
    launcher = release.launch()
    train(kubelet)
    assert launcher.end().code == 0
    release.done("uninstall")
    assert wait_for(lambda: release.left(*OURS) == ["persistentvolumeclaims/one-device-model"])


def test_somebody_elses_run(release: Release, tmp_path: Path) -> None:
    """The run has the same name, and is in the same namespace."""
    (tmp_path / "cluster.yaml").write_text(
        "{apiVersion: launcher/v1alpha1, kind: TrainingCluster, metadata: {name: one-device}, "
        "spec: {strategy: OneDevice, command: [train]}}"
    )
    (loaded,) = loader.load(str(tmp_path / "cluster.yaml"))
    theirs = plan_of_file.plan(plan_of_file.placed(loaded, release.namespace, "default"), uuid.uuid4().hex)
    KubernetesBackend(str(release.api.kubeconfig)).submit(theirs, detach=True)
    release.done("install", "-f", VALUES)
    before = uid(release)
    done = release.launch().end()
    assert (done.code, uid(release)) == (4, before)
    assert done.error.splitlines() == [
        (
            f"error: there is a run one-device in namespace {release.namespace} that does not belong to "
            f"ConfigMap/{FULLNAME}"
        ),
        (
            "Give this one another name (metadata.name), or remove the other with: "
            "python -m launcher delete one-device"
        ),
    ]


def test_a_wrong_file(release: Release) -> None:
    """No schema finds the error: the launcher's log reports it, and there is no retry."""
    release.done("install", "-f", VALUES, "--set", "spec.ps.replicas=1")
    done = release.launch().end()
    assert done.code == 2
    assert "spec.ps" in done.error
    assert uid(release) is None


def test_no_right_to_make_roles(release: Release, tmp_path: Path) -> None:
    """Helm reports the missing right; without the chart's Role the launcher reports it."""
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "serviceaccounts", "secrets"], "verbs": ["*"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles", "rolebindings"],
            "verbs": ["get"],
        },
    ]
    mine = users.user(release.api, release.namespace, rules, tmp_path)
    helm = dataclasses.replace(find(tmp_path / "helm"), kubeconfig=mine)
    limited = Release(release.api, helm, release.namespace, tmp_path)
    done = limited.helm("install", "-f", VALUES)
    assert done.code == 1
    assert 'roles.rbac.authorization.k8s.io "mnist-tf-launcher" is forbidden: User "system:serv' in done.error
    assert 'cannot patch resource "roles"' in done.error
    limited.helm("uninstall")

    account = ["--set", "rbac.create=false,serviceAccount.create=false,serviceAccount.name=default"]
    limited.done("install", "-f", VALUES, *account)
    done = limited.launch().end()
    limited.close()
    assert done.code == 5
    assert done.error.splitlines() == [
        (
            f"error: system:serviceaccount:{release.namespace}:default may not get configmaps in namespace "
            f"{release.namespace}"
        ),
        (
            f"Ask for a Role that allows it; `kubectl auth can-i get configmaps -n {release.namespace}` "
            "tells whether you have it."
        ),
    ]


def controller(release: Release) -> Any:
    path = f"{PATHS['Deployment'].format(release.namespace)}/{FULLNAME}-controller"
    return release.api.request("GET", path).body


def test_a_controller_of_one_namespace(release: Release, kubelet: Kubelet, tmp_path: Path) -> None:
    """It has no right elsewhere, and the definition of TFJobs stays, also in an upgrade."""
    values = ("--set", f"controller.enabled=true,controller.namespaces={{{release.namespace}}}")
    try:
        notes = release.done("install", *values)
        assert f"tf-launcher-controller trains the TFJobs of {release.namespace}." in notes
        assert {job["kind"] for job in release.objects()} == {
            "CustomResourceDefinition", "Deployment", "Role", "RoleBinding", "ServiceAccount",
        }  # fmt: skip
        with installed_controller.running(release.api, controller(release), tmp_path / "pod") as made:
            installed_controller.train(release.api, kubelet, made.log)
        first = release.api.request("GET", DEFINITION).body["metadata"]["uid"]
        release.done("upgrade", *values, "--set", "controller.replicas=1")
        assert controller(release)["spec"]["replicas"] == 1
        release.done("uninstall")
        kept = release.api.request("GET", DEFINITION).body["metadata"]
        assert (kept["uid"], "deletionTimestamp" in kept) == (first, False)
        release.done("install", *values)
        release.done("uninstall")
    finally:
        release.api.request("DELETE", DEFINITION)
        assert wait_for(lambda: release.api.request("GET", DEFINITION).status == 404)


@pytest.mark.thorough
def test_a_controller_in_the_operators_place(release: Release, kubelet: Kubelet, tmp_path: Path) -> None:
    """The definition of TFJobs that is there stays as it is."""
    with installed(release.api, "kubeflow.org_tfjobs"):
        before = release.api.request("GET", DEFINITION).body
        release.done("install", "--set", "controller.enabled=true")
        with installed_controller.running(release.api, controller(release), tmp_path / "pod") as made:
            installed_controller.train(release.api, kubelet, made.log)
        release.done("uninstall")
        after = release.api.request("GET", DEFINITION).body
        assert (after["spec"], after["metadata"]) == (before["spec"], before["metadata"])
