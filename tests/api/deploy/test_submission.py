"""What the Kubernetes backend creates, changes, refuses and deletes on a real API server."""

from __future__ import annotations

import base64
import copy
import json
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from launcher.backends.base import Plan
from launcher.backends.kubernetes.api_server.client import Applied, Client
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.preflight import needed_rights
from launcher.errors import BackendError, ConflictError, NotFoundError
from launcher.plan import pods, runtime_archive
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import PATHS, Api, wait_for
from tests.api.runs import OBJECTS, RUN, plan
from tests.api.users import user
from worker.contract.run_config import RunConfig

KINDS = ("Job", "Service", "ConfigMap", "NetworkPolicy", "PersistentVolumeClaim")
LABEL = "tf-launcher.dev/run"


@pytest.fixture
def planned(tmp_path: Path, namespace: str) -> Plan:
    return plan(tmp_path, namespace)


def there(api: Api, namespace: str) -> dict[str, dict[str, Any]]:
    """Returns the run's objects except its pods, by kind and name."""
    return {
        f"{kind} {item['metadata']['name']}": item
        for kind in KINDS
        for item in api.list(kind, namespace)
        if LABEL in item["metadata"].get("labels", {}) and "deletionTimestamp" not in item["metadata"]
    }


def versions(api: Api, namespace: str) -> dict[str, str]:
    return {
        name: item["metadata"]["resourceVersion"]
        for name, item in there(api, namespace).items()
        if not name.startswith("Job")
    }


def delete(api: Api, kind: str, namespace: str, name: str, policy: str = "Background") -> None:
    answer = api.request("DELETE", f"{PATHS[kind].format(namespace)}/{name}", {"propagationPolicy": policy})
    assert answer.status in (200, 202), answer.body


def test_everything_belongs_to_the_primary_job(
    api: Api, backend: KubernetesBackend, namespace: str, planned: Plan
) -> None:
    assert backend.submit(planned, detach=True) == ""

    objects = there(api, namespace)
    assert objects.keys() == set(OBJECTS)
    uid = objects["Job mnist-chief"]["metadata"]["uid"]
    for name, item in objects.items():
        owners = item["metadata"].get("ownerReferences", [])
        if name in ("Job mnist-chief", "PersistentVolumeClaim mnist-model"):
            assert owners == []
        else:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist-chief", "uid": uid}
            assert owners == [owner]
        managers = [entry["manager"] for entry in item["metadata"]["managedFields"]]
        assert managers[0] == "tf-launcher"
    assert wait_for(lambda: len(api.list("Pod", namespace)) == 5)


def test_what_pods_mount_is_there_before_the_first_job(
    backend: KubernetesBackend, planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet whose first mount fails waits many seconds before its next."""
    kinds = []
    apply = Client.apply

    def recorded(client: Client, item: dict[str, Any], *, dry_run: bool = False) -> Applied:
        answer = apply(client, item, dry_run=dry_run)
        if not dry_run:
            kinds.append(item["kind"])
        return answer

    monkeypatch.setattr(Client, "apply", recorded)
    backend.submit(planned, detach=True)
    before = kinds.index("Job")
    assert set(kinds[:before]) == {*KINDS} - {"Job"}
    assert set(kinds[before:]) == {"Job"}


def test_a_claim_outlives_its_jobs_and_goes_by_delete(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    """The primary Job may be deleted by its time to live although the run was not done."""
    backend.submit(plan(tmp_path, namespace, "spec.storage.reclaimPolicy=Delete"), detach=True)
    assert backend.claims_to_delete(RUN, namespace) == ["PersistentVolumeClaim mnist-model"]
    delete(api, "Job", namespace, "mnist-chief")
    assert wait_for(lambda: there(api, namespace).keys() == {"PersistentVolumeClaim mnist-model"})
    assert backend.claims_to_delete(RUN, namespace) == ["PersistentVolumeClaim mnist-model"]
    assert backend.delete(RUN, namespace) == ""
    assert there(api, namespace) == {}


def test_any_text_arrives(api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path) -> None:
    """Server-side apply reads YAML, in which some of these characters are line breaks, or forbidden."""
    odd = "\u00e9 \U0001f600 \u2028 \u2029 \x85 \x7f \ufeff \t $(HOME) ' \" \\ : - # --- yes: on"
    program = f"class Mnist: ...\n# {odd}\n"
    backend.submit(plan(tmp_path, namespace, program=program), detach=True)
    kept = there(api, namespace)["ConfigMap mnist-source"]
    assert kept["data"] == {"file-0": program}


def test_the_same_file_again_changes_nothing(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    before = versions(api, namespace)
    message = backend.submit(plan(tmp_path, namespace), detach=True)
    assert message == "run mnist is running already, and is what was submitted"
    assert versions(api, namespace) == before
    assert set(backend.dry_run(plan(tmp_path, namespace))) == {
        f"{name} is there, unchanged" for name in OBJECTS
    }


def test_the_runtime_goes_with_the_run_and_stays_what_it_was(
    api: Api,
    backend: KubernetesBackend,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launcher of another version, which follows the run or submits it again, changes none of
    its objects.
    """
    other = "spec.image=tensorflow/tensorflow:2.21.0"
    backend.submit(plan(tmp_path, namespace, other), detach=True)
    made = there(api, namespace)["ConfigMap mnist-runtime"]
    assert base64.b64decode(made["binaryData"]["worker.zip"]) == runtime_archive.packed(None)
    assert [owner["name"] for owner in made["metadata"]["ownerReferences"]] == ["mnist-chief"]

    before = versions(api, namespace)
    with monkeypatch.context() as patched:
        patched.setattr(runtime_archive, "packed", lambda _: b"another one")
        patched.setattr(pods, "RunConfig", partial(RunConfig, version="0.0.9"))
        again = plan(tmp_path, namespace, other)
    message = backend.submit(again, detach=True)
    assert message == "run mnist is running already, and is what was submitted"
    assert versions(api, namespace) == before

    backend.delete(RUN, namespace)
    assert wait_for(lambda: "ConfigMap mnist-runtime" not in there(api, namespace))


def test_what_was_lost_is_made_again(
    api: Api, backend: KubernetesBackend, namespace: str, planned: Plan
) -> None:
    backend.submit(planned, detach=True)
    delete(api, "Service", namespace, "mnist")
    message = backend.submit(planned, detach=True)
    assert message == "run mnist is running already; changed:\n  Service mnist: is made again"
    assert "Service mnist" in there(api, namespace)


def test_what_may_change_is_changed(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    changed = plan(tmp_path, namespace, "spec.runPolicy.ttlSecondsAfterFinished=7200")
    change = "spec.ttlSecondsAfterFinished: 3600 -> 7200"
    assert f"Job mnist-chief would be changed: {change}" in backend.dry_run(changed)
    message = backend.submit(changed, detach=True)
    assert f"Job mnist-chief: {change}" in message
    assert there(api, namespace)["Job mnist-chief"]["spec"]["ttlSecondsAfterFinished"] == 7200


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("spec.worker.replicas=3", "spec.worker.replicas: 2 -> 3"),
        ("spec.worker.replicas=1", "spec.worker.replicas: 2 -> 1"),
        ("spec.runPolicy.stallSeconds=50", "spec.runPolicy.stallSeconds: 600 -> 50"),
        ("spec.ps.replicas=2", "spec.ps.replicas: 1 -> 2"),
        ("spec.image=other:1", 'spec.image: nothing -> "other:1"'),
        ("spec.program.parameters.epochs=9", "spec.program.parameters.epochs: nothing -> 9"),
    ],
)
def test_what_must_not_change_is_refused_with_the_difference(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path, override: str, difference: str
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    before = versions(api, namespace)
    with pytest.raises(ConflictError) as refused:
        backend.submit(plan(tmp_path, namespace, override), detach=True)
    assert difference in refused.value.message
    assert "Submit it with --replace" in refused.value.hint
    assert versions(api, namespace) == before


def test_another_program_under_a_run_that_goes_on_is_refused(
    backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    with pytest.raises(ConflictError, match=r"ConfigMap mnist-source: data\.file-0"):
        backend.submit(plan(tmp_path, namespace, program="class Mnist: pass\n"), detach=True)


def test_a_run_is_replaced_on_demand(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    wider = plan(tmp_path, namespace, "spec.worker.replicas=3")
    message = backend.submit(wider, detach=True, replace=True)
    assert message == "run mnist, which went on, is deleted and replaced"
    assert there(api, namespace)["Job mnist-worker"]["spec"]["completions"] == 3


def test_a_replaced_run_leaves_its_claim_to_the_next(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    """This includes a claim that is deleted with the run."""
    goes = "spec.storage.reclaimPolicy=Delete"
    backend.submit(plan(tmp_path, namespace, goes), detach=True)
    before = there(api, namespace)["PersistentVolumeClaim mnist-model"]["metadata"]
    backend.submit(plan(tmp_path, namespace, goes, "spec.worker.replicas=3"), detach=True, replace=True)
    objects = there(api, namespace)
    after = objects["PersistentVolumeClaim mnist-model"]["metadata"]
    assert after["uid"] == before["uid"]
    assert "ownerReferences" not in after
    assert backend.delete(RUN, namespace) == ""
    assert there(api, namespace) == {}


def test_a_run_is_replaced_where_a_quota_has_no_room_for_both(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    quota = {"metadata": {"name": "four-jobs"}, "spec": {"hard": {"count/jobs.batch": "4"}}}
    path = f"api/v1/namespaces/{namespace}/resourcequotas"
    assert api.request("POST", path, quota).status == 201

    def used() -> bool:
        status = api.request("GET", f"{path}/four-jobs").body.get("status", {})
        return bool(status.get("used") == {"count/jobs.batch": "4"})

    assert wait_for(used, 120)  # the quota controller counts again by and by
    backend.submit(plan(tmp_path, namespace, "spec.worker.replicas=3"), detach=True, replace=True)
    assert there(api, namespace)["Job mnist-worker"]["spec"]["completions"] == 3


def test_a_run_is_not_deleted_for_one_that_the_cluster_refuses(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    before = versions(api, namespace)
    wrong = plan(tmp_path, namespace, "spec.worker.podTemplate.spec.runtimeClassName=A_B")
    for attempt in (backend.dry_run, partial(backend.submit, detach=True)):
        with pytest.raises(BackendError, match=r"refused to patch jobs\.batch mnist-worker in") as refused:
            attempt(wrong, replace=True)
        assert "runtimeClassName" in refused.value.message
    assert versions(api, namespace) == before


def test_a_run_that_has_ended_is_replaced(
    backend: KubernetesBackend, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    (chief,) = kubelet.start("chief")
    kubelet.end(chief, 70)
    assert wait_for(lambda: backend.status(RUN, namespace).phase.value == "Failed")
    assert "Job mnist-worker would be replaced" in backend.dry_run(plan(tmp_path, namespace))
    message = backend.submit(plan(tmp_path, namespace, "spec.worker.replicas=3"), detach=True)
    assert message == "run mnist, which had failed, is deleted and replaced"
    assert backend.status(RUN, namespace).phase.value == "Pending"


def test_what_is_left_of_a_run_without_its_primary_job_is_cleared(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    delete(api, "Job", namespace, "mnist-chief", "Orphan")
    chief = f"{PATHS['Job'].format(namespace)}/mnist-chief"
    assert wait_for(lambda: api.request("GET", chief).status == 404)
    with pytest.raises(NotFoundError):
        backend.status(RUN, namespace)
    backend.submit(plan(tmp_path, namespace, "spec.worker.replicas=3"), detach=True)
    objects = there(api, namespace)
    assert objects.keys() == set(OBJECTS)
    assert objects["Job mnist-worker"]["spec"]["completions"] == 3


def test_a_run_follows_one_whose_pods_still_end(
    api: Api, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Jobs are gone. The garbage collector has deleted the pods: no right to delete single ones is
    needed.
    """
    namespace = kubelet.namespace
    monkeypatch.setenv("KUBECONFIG", str(user(api, namespace, needed_rights.RULES, tmp_path)))
    backend = KubernetesBackend()
    backend.submit(plan(tmp_path, namespace), detach=True)
    (pod,) = kubelet.start("chief")
    path = f"{PATHS['Pod'].format(namespace)}/{pod['metadata']['name']}"

    def hold(finalizers: list[str] | None) -> None:
        patch = {"metadata": {"finalizers": finalizers}}
        assert api.patch(path, patch, "application/merge-patch+json").status == 200

    hold(["example.com/held"])
    delete(api, "Job", namespace, "mnist-chief")
    assert wait_for(lambda: api.list("Job", namespace) == [])
    assert wait_for(lambda: "deletionTimestamp" in api.request("GET", path).body["metadata"])
    timer = Timer(2, hold, [None])
    timer.start()
    backend.submit(plan(tmp_path, namespace), detach=True)
    timer.join()
    assert there(api, namespace).keys() == set(OBJECTS)


def test_a_dry_run_makes_nothing(api: Api, backend: KubernetesBackend, namespace: str, planned: Plan) -> None:
    assert backend.dry_run(planned) == [f"{name} would be created" for name in OBJECTS]
    assert there(api, namespace) == {}


@pytest.mark.parametrize("kind", ["Job", "ConfigMap"])
def test_a_name_that_somebody_else_has_is_refused(
    api: Api, backend: KubernetesBackend, namespace: str, planned: Plan, kind: str
) -> None:
    theirs = copy.deepcopy(dict(next(item for item in planned.objects if item["kind"] == kind)))
    theirs["metadata"]["labels"] = {"theirs": "yes"}
    assert api.create(theirs, namespace).status == 201
    name = theirs["metadata"]["name"]
    with pytest.raises(ConflictError, match=f"there is a {kind} {name} in namespace .* does not belong"):
        backend.submit(planned, detach=True)
    assert there(api, namespace) == {}


def test_nothing_is_made_where_one_kind_is_refused(
    api: Api, namespace: str, planned: Plan, tmp_path: Path
) -> None:
    rules = [{"apiGroups": [group], "resources": ["*"], "verbs": ["*"]} for group in ("batch", "")] + [
        {"apiGroups": ["networking.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]}
    ]
    kubeconfig = user(api, namespace, rules, tmp_path)
    with pytest.raises(
        BackendError, match=r"may not patch networkpolicies\.networking\.k8s\.io in namespace"
    ):
        KubernetesBackend(str(kubeconfig)).submit(planned, detach=True)
    assert there(api, namespace) == {}


def test_a_failure_half_way_leaves_nothing(
    api: Api, backend: KubernetesBackend, namespace: str, planned: Plan
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two-jobs"},
        "spec": {"hard": {"count/jobs.batch": "2"}},
    }
    path = f"api/v1/namespaces/{namespace}/resourcequotas"
    assert api.request("POST", path, quota).status == 201
    assert wait_for(lambda: "hard" in api.request("GET", f"{path}/two-jobs").body.get("status", {}))
    with pytest.raises(BackendError, match="a quota forbids to patch jobs") as refused:
        backend.submit(planned, detach=True)
    assert "used: count/jobs.batch=2" in refused.value.message
    assert "what had been made of the run was removed again" in refused.value.message
    assert wait_for(lambda: there(api, namespace) == {}), there(api, namespace).keys()


def test_deleting_the_primary_job_deletes_the_run(
    api: Api, backend: KubernetesBackend, namespace: str, planned: Plan
) -> None:
    backend.submit(planned, detach=True)
    assert wait_for(lambda: len(api.list("Pod", namespace)) == 5)
    delete(api, "Job", namespace, "mnist-chief")
    assert wait_for(lambda: there(api, namespace).keys() == {"PersistentVolumeClaim mnist-model"})
    assert wait_for(lambda: api.list("Pod", namespace) == [])


def test_delete_returns_when_all_is_gone_but_the_claim(
    api: Api, backend: KubernetesBackend, namespace: str, planned: Plan
) -> None:
    backend.submit(planned, detach=True)
    assert wait_for(lambda: len(api.list("Pod", namespace)) == 5)
    stays = backend.delete(RUN, namespace)
    assert "what it has trained stays, on PersistentVolumeClaim mnist-model" in stays
    assert f"kubectl delete pvc mnist-model -n {namespace}" in stays
    assert there(api, namespace).keys() == {"PersistentVolumeClaim mnist-model"}
    assert api.list("Pod", namespace) == []
    with pytest.raises(NotFoundError, match=f"there is no run mnist in namespace {namespace}"):
        backend.delete(RUN, namespace)
    # The next run uses it again.
    assert backend.submit(planned, detach=True) == ""


def test_another_size_of_a_claim_that_was_kept_is_refused(
    backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    backend.delete(RUN, namespace)
    with pytest.raises(ConflictError) as refused:
        backend.submit(plan(tmp_path, namespace, "spec.storage.size=20Gi"), detach=True)
    assert 'spec.resources.requests.storage: "10Gi" -> "20Gi"' in refused.value.message
    assert "kubectl delete pvc mnist-model" in refused.value.hint


def test_where_the_model_is(backend: KubernetesBackend, namespace: str, planned: Plan) -> None:
    backend.submit(planned, detach=True)
    places = backend.places(RUN, namespace)
    assert places == {"model directory": "/model on PersistentVolumeClaim mnist-model"}


def test_runs_are_listed(backend: KubernetesBackend, namespace: str, tmp_path: Path) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    backend.submit(plan(tmp_path, namespace, "metadata.name=other"), detach=True)
    listed = [(status.run, len(status.roles)) for status in backend.runs(namespace)]
    assert listed == [("mnist", 4), ("other", 4)]
    assert {(namespace, "mnist"), (namespace, "other")} <= {
        (status.namespace, status.run) for status in backend.runs(None)
    }


def test_the_objects_do_not_grow_with_the_workers(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    suspended = plan(tmp_path, namespace, "spec.worker.replicas=1000", "spec.runPolicy.suspend=true")
    backend.submit(suspended, detach=True)
    objects = there(api, namespace)
    assert objects.keys() == set(OBJECTS)
    assert len(json.dumps(objects["Job mnist-worker"])) < 20_000
