"""Runs that Kueue admits, against Kueue's and JobSet's definitions: the tests play both controllers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.preflight.needed_rights import RULES
from launcher.backends.kubernetes.state import jobsets
from launcher.backends.kubernetes.state.jobsets import jobs_of
from launcher.cli import parser
from launcher.errors import BackendError, ConflictError
from launcher.status import ADMISSION, Phase
from tests.api.conftest import installed
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, Follower, backend_for, plan, start_all
from tests.api.users import kubeconfig, user

KUEUE = ("kueue.x-k8s.io_workloads", "kueue.x-k8s.io_localqueues")
JOBSET = "jobset.x-k8s.io_jobsets"
QUEUE = "spec.scheduling={queue: team-a}"
LABELS = {"jobset-name": RUN, "job-index": "0", "restart-attempt": "0"}
"""Some of those that JobSet's controller gives its Jobs, without their prefix."""
WORDS = "couldn't assign flavors to pod set chief: insufficient unused quota for cpu"


class Controllers:
    """Plays Kueue and JobSet's controller in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.namespace = namespace
        self._api = api

    def path(self, kind: str, name: str = "") -> str:
        group = "jobset.x-k8s.io/v1alpha2" if kind == "jobsets" else "kueue.x-k8s.io/v1beta2"
        return f"apis/{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def queue(self, name: str = "team-a") -> None:
        self._made(self.path("localqueues"), {"metadata": {"name": name}, "spec": {"clusterQueue": "all"}})

    def jobset(self) -> dict[str, Any]:
        answer = self._api.request("GET", self.path("jobsets", RUN))
        assert answer.status == 200, answer.body
        return answer.body

    def workload(self, name: str, owner: dict[str, Any], *, group: bool = False) -> None:
        """Creates a Workload as Kueue does: for a JobSet, or for a group of pods."""
        pod = {"metadata": {}, "spec": {"containers": [{"name": "tensorflow", "image": "image"}]}}
        metadata = {
            "name": name,
            "labels": {"kueue.x-k8s.io/job-uid": owner["metadata"]["uid"]},
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"} if group else {},
        }
        spec = {"queueName": "team-a", "podSets": [{"name": "main", "count": 1, "template": pod}]}
        self._made(self.path("workloads"), {"metadata": metadata, "spec": spec})

    def says(self, name: str, **conditions: tuple[str, str]) -> None:
        """Sets the Workload's conditions: `type=(status, message)`."""
        path = self.path("workloads", name)
        item = self._api.request("GET", path).body
        at = "2026-01-01T00:00:00Z"
        item["status"] = {}
        item["status"]["conditions"] = [
            {"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": at}
            for kind, (status, message) in conditions.items()
        ]
        answer = self._api.request("PUT", f"{path}/status", item)
        assert answer.status == 200, answer.body

    def suspended(self, value: bool) -> None:
        """Admits or evicts as Kueue does; the Jobs follow, as JobSet's controller has them."""
        merge = "application/merge-patch+json"
        patch = {"spec": {"suspend": value}}
        assert self._api.patch(self.path("jobsets", RUN), patch, merge).status == 200
        for job in self._api.list("Job", self.namespace):
            path = f"apis/batch/v1/namespaces/{self.namespace}/jobs/{job['metadata']['name']}"
            assert self._api.patch(path, patch, merge).status == 200

    def make_jobs(self) -> None:
        """Creates the Jobs of the JobSet."""
        jobset = self.jobset()
        owner = {
            "apiVersion": jobset["apiVersion"],
            "kind": "JobSet",
            "name": RUN,
            "uid": jobset["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        for job in jobs_of(jobset):
            metadata = {key: job["metadata"][key] for key in ("name", "annotations")}
            jobset_labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in LABELS.items()}
            metadata |= {"labels": {**job["metadata"]["labels"], **jobset_labels}, "ownerReferences": [owner]}
            item = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["spec"]}
            made = self._api.create(item, self.namespace)
            assert made.status == 201, made.body

    def remove_jobs(self) -> None:
        """Removes the Jobs, so that all start again."""
        for job in self._api.list("Job", self.namespace):
            path = f"apis/batch/v1/namespaces/{self.namespace}/jobs/{job['metadata']['name']}"
            self._api.request("DELETE", path, {"propagationPolicy": "Background"})
        assert wait_for(lambda: not self._api.list("Job", self.namespace))

    def ends(self, kind: str, message: str) -> None:
        """Sets the JobSet to Completed or Failed."""
        item = self.jobset()
        at = "2026-01-01T00:00:10Z"
        condition = {"type": kind, "status": "True", "reason": kind, "message": message}
        item["status"] = {"restarts": 0, "conditions": [{**condition, "lastTransitionTime": at}]}
        answer = self._api.request("PUT", self.path("jobsets", RUN) + "/status", item)
        assert answer.status == 200, answer.body

    def _made(self, path: str, item: dict[str, Any]) -> None:
        kind = {"localqueues": "LocalQueue", "workloads": "Workload"}[path.rsplit("/", 1)[1]]
        item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **item}
        answer = self._api.request("POST", path, item, fieldValidation="Strict")
        assert answer.status == 201, answer.body


@pytest.fixture(scope="module")
def kueue(api: Api) -> Iterator[None]:
    with installed(api, *KUEUE):
        yield


@pytest.fixture
def with_jobset(api: Api, kueue: None) -> Iterator[None]:
    with installed(api, JOBSET):
        yield


@pytest.fixture
def controllers(api: Api, kueue: None, namespace: str) -> Controllers:
    made = Controllers(api, namespace)
    made.queue()
    return made


# ---- what is missing; first, before anything is installed


def test_no_kueue(
    api: Api,
    backend: KubernetesBackend,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if api.request("GET", "apis/kueue.x-k8s.io").status != 404:
        pytest.skip("this cluster has Kueue")
    for scheduling in ("{queue: team-a}", "{queue: team-a, gang: Kueue}"):
        with pytest.raises(BackendError) as error:
            backend.submit(plan(tmp_path, namespace, f"spec.scheduling={scheduling}"), detach=True)
        assert error.value.message == (
            "Kueue is not installed: the cluster does not know workloads.kueue.x-k8s.io, "
            "which spec.scheduling.queue (or gang: Kueue) asks for"
        )
    assert api.list("Job", namespace) == []
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(api, tmp_path, namespace=namespace)))
    assert parser.main(["doctor", str(tmp_path / "cluster.yaml"), "--set", QUEUE]) == 5
    out = capsys.readouterr().out
    assert re.search(r"^missing +Kueue +Kueue is not installed", out, re.MULTILINE)


# ---- one JobSet, where the cluster knows the kind


@pytest.mark.thorough
@pytest.mark.usefixtures("with_jobset")
def test_a_jobset_waits_for_its_queue(
    api: Api, backend: KubernetesBackend, controllers: Controllers, tmp_path: Path
) -> None:
    space = controllers.namespace
    planned = plan(tmp_path, space, QUEUE)
    assert backend.dry_run(planned)[0] == "JobSet mnist would be created"
    backend.submit(planned, detach=True)
    jobset = controllers.jobset()
    assert jobset["spec"]["suspend"] is True
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert api.list("Job", space) == []
    for kind in ("ConfigMap", "NetworkPolicy"):
        owners = [
            item["metadata"]["ownerReferences"][0]["uid"]
            for item in api.list(kind, space)
            if item["metadata"]["name"].startswith(RUN)
        ]
        assert set(owners) == {jobset["metadata"]["uid"]}

    status = backend.status(RUN, space)
    assert (status.phase, status.reason) == (Phase.SUSPENDED, ADMISSION)
    assert status.message == "waits for admission by queue team-a"
    assert [role.desired for role in status.roles] == [1, 2, 1, 1]
    controllers.workload("jobset-mnist-1", jobset)
    controllers.says("jobset-mnist-1", QuotaReserved=("False", WORDS))
    assert backend.status(RUN, space).message == f"waits for admission by queue team-a: {WORDS}"
    assert [run_status.phase for run_status in backend.runs(space)] == [Phase.SUSPENDED]

    again = backend.submit(plan(tmp_path, space, QUEUE), detach=True)
    assert "is running already, and is what was submitted" in again
    assert "queue team-a says when it is started" in again
    with pytest.raises(ConflictError, match=r"spec.worker.replicas: 2 -> 3"):
        backend.submit(plan(tmp_path, space, QUEUE, "spec.worker.replicas=3"), detach=True)

    backend.suspend(RUN, space)
    workload = controllers.path("workloads", "jobset-mnist-1")
    assert api.request("GET", workload).body["spec"]["active"] is False
    assert "held back" in backend.status(RUN, space).message
    backend.resume(RUN, space)
    assert api.request("GET", workload).body["spec"]["active"] is True
    backend.delete(RUN, space)
    assert api.request("GET", controllers.path("jobsets", RUN)).status == 404
    assert [item["metadata"]["name"] for item in api.list("ConfigMap", space)] == ["kube-root-ca.crt"]


@pytest.mark.usefixtures("with_jobset")
def test_the_life_of_a_jobset(
    backend: KubernetesBackend, controllers: Controllers, kubelet: Kubelet, tmp_path: Path
) -> None:
    """It is admitted, evicted, admitted again, restarted as a whole, and ends."""
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space, QUEUE), detach=True)
    controllers.make_jobs()
    controllers.workload("jobset-mnist-1", controllers.jobset())
    controllers.says("jobset-mnist-1", QuotaReserved=("False", WORDS))
    follower = Follower(backend.follow(RUN, space))
    assert WORDS in follower.until(lambda status: status.reason == ADMISSION).message
    controllers.says("jobset-mnist-1", Admitted=("True", ""))
    controllers.suspended(False)
    start_all(kubelet)
    assert follower.until(lambda status: status.all_run).phase is Phase.RUNNING
    assert not any(name.startswith("jobset.") for name in backend.status(RUN, space).labels)
    names = [task.name for task in backend.status(RUN, space).tasks]
    assert names[:3] == ["mnist-chief-0", "mnist-worker-0", "mnist-worker-1"]

    controllers.says("jobset-mnist-1", Evicted=("True", "Preempted to accommodate a workload"))
    controllers.suspended(True)
    status = follower.until(lambda status: status.phase is Phase.SUSPENDED and "evicted" in status.message)
    assert "it was evicted (Evicted): Preempted to accommodate a workload" in status.message
    kubelet.finish_deleted()
    controllers.says("jobset-mnist-1", Admitted=("True", ""))
    controllers.suspended(False)
    start_all(kubelet)
    follower.until(lambda status: status.all_run)

    # A failed Job is no end while its controller may restart all Jobs.
    kubelet.end(kubelet.pods("ps")[0], 75)
    assert wait_for(lambda: backend.status(RUN, space).roles[2].failed == 1)
    assert not follower.until(lambda status: status.roles[2].failed == 1).ended
    controllers.remove_jobs()
    kubelet.finish_deleted()
    controllers.make_jobs()
    start_all(kubelet)
    assert follower.until(lambda status: status.all_run).phase is Phase.RUNNING

    (chief,) = kubelet.pods("chief")
    kubelet.end(chief, 0)
    controllers.ends("Completed", "jobset completed successfully")
    last = follower.rest()
    assert (last.phase, last.ended) == (Phase.SUCCEEDED, True)
    assert backend.submit(plan(tmp_path, space, QUEUE), detach=True).startswith(
        "run mnist, which had succeeded, is deleted and replaced"
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("with_jobset")
def test_a_jobset_that_fails(
    api: Api, backend: KubernetesBackend, controllers: Controllers, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space, QUEUE), detach=True)
    controllers.make_jobs()
    controllers.suspended(False)
    start_all(kubelet)
    # A user without the right to see JobSets sees the run by its Jobs.
    other = KubernetesBackend(str(user(api, space, RULES, tmp_path)))
    assert wait_for(lambda: other.status(RUN, space).phase is Phase.RUNNING)
    words = "jobset failed due to one or more job failures (first failed job: mnist-ps-0)"
    controllers.ends("Failed", words)
    status = backend.status(RUN, space)
    assert (status.phase, status.ended, status.message) == (Phase.FAILED, True, words)
    with pytest.raises(ConflictError, match="has ended"):
        backend.resume(RUN, space)


@pytest.mark.thorough
@pytest.mark.usefixtures("with_jobset")
def test_a_jobset_that_belongs_to_another_object(
    api: Api, backend: KubernetesBackend, controllers: Controllers, tmp_path: Path
) -> None:
    """Such an object is the launcher Job of a Helm release."""
    space = controllers.namespace
    owner = api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}, space)
    for _ in range(2):
        message = backend.submit(plan(tmp_path, space, QUEUE), detach=True, owners=["ConfigMap/owner"])
    assert message == "run mnist is there already, and is what was submitted"
    (reference,) = controllers.jobset()["metadata"]["ownerReferences"]
    assert reference["uid"] == owner.body["metadata"]["uid"]
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}, space)
    for changed in (QUEUE, "spec.worker.replicas=3"):
        with pytest.raises(ConflictError, match="does not belong to ConfigMap/other"):
            backend.submit(plan(tmp_path, space, changed), detach=True, owners=["ConfigMap/other"])
    backend.delete(RUN, space)


@pytest.mark.thorough
@pytest.mark.usefixtures("with_jobset")
def test_a_run_in_another_form_is_not_replaced_unasked(
    api: Api, backend: KubernetesBackend, controllers: Controllers, tmp_path: Path
) -> None:
    space = controllers.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    for attempt in (backend.dry_run, lambda planned: backend.submit(planned, detach=True)):
        with pytest.raises(ConflictError, match="it is to be a JobSet and is there as Jobs"):
            attempt(plan(tmp_path, space, QUEUE))
    assert len(api.list("Job", space)) == 4
    message = backend.submit(plan(tmp_path, space, QUEUE), detach=True, replace=True)
    assert message.startswith("run mnist, which went on, is deleted and replaced")
    assert api.list("Job", space) == []
    with pytest.raises(ConflictError, match="it is to be Jobs and is there as a JobSet"):
        backend.submit(plan(tmp_path, space), detach=True)
    backend.delete(RUN, space)


# ---- a group of plain pods, where it does not


def test_a_group_of_pods_where_there_is_no_jobset(
    api: Api, backend: KubernetesBackend, controllers: Controllers, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space, QUEUE), detach=True)
    pods = kubelet.pending_all(5)
    for pod in pods:
        metadata = pod["metadata"]
        assert metadata["labels"]["kueue.x-k8s.io/pod-group-name"] == RUN
        assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "5"
        assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    assert all("kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"] for job in api.list("Job", space))

    controllers.workload(RUN, pods[0], group=True)
    controllers.says(RUN, QuotaReserved=("False", WORDS))
    status = backend.status(RUN, space)
    assert (status.phase, status.reason) == (Phase.PENDING, ADMISSION)
    assert status.message == f"waits for admission by queue team-a: {WORDS}"
    assert [role.message for role in status.roles] == [""] * 4
    controllers.says(RUN, Admitted=("True", ""))
    start_all(kubelet)
    assert backend.status(RUN, space).phase is Phase.RUNNING

    # A pod that Kueue evicts uses up no try of its task.
    (chief,) = kubelet.pods("chief")
    target = {"type": "TerminationTarget", "status": "True", "reason": "Preempted"}
    kubelet.end(chief, 137, conditions=[target])
    kubelet.start("chief")
    assert wait_for(lambda: backend.status(RUN, space).roles[0].failed == 0)

    for pod in kubelet.pods():
        kubelet.end(pod, 70 if pod["metadata"]["labels"]["tf-launcher.dev/role"] == "chief" else 143)
    last = Follower(backend.follow(RUN, space)).rest()
    assert last.phase is Phase.FAILED
    # Otherwise Kueue would hold the quota for pods that never come.
    assert backend.clean(RUN, space) == ""
    marks = [
        pod["metadata"]["annotations"].get("kueue.x-k8s.io/retriable-in-group") for pod in kubelet.pods()
    ]
    assert "false" in marks
    backend.delete(RUN, space)
    assert api.request("GET", controllers.path("workloads", RUN)).status == 404


def test_extra_workers_are_admitted_one_by_one_stopped_and_scaled(
    api: Api, backend: KubernetesBackend, controllers: Controllers, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    elastic = "spec.worker={replicas: 3, minReplicas: 1, maxReplicas: 4}"
    backend.submit(plan(tmp_path, space, QUEUE, elastic), detach=True)
    pods = kubelet.pending_all(6)
    extra = [pod for pod in pods if pod["metadata"]["labels"]["tf-launcher.dev/role"] == "extra-worker"]
    groups = [pod["metadata"]["labels"].get("kueue.x-k8s.io/pod-group-name") for pod in extra]
    assert groups == [None, None]
    controllers.workload(RUN, pods[0], group=True)
    controllers.says(RUN, Admitted=("True", ""))
    for role in ("chief", "worker", "ps", "evaluator"):
        kubelet.start(role)

    def job() -> dict[str, Any]:
        items = {item["metadata"]["name"]: item for item in api.list("Job", space)}
        return dict(items[f"{RUN}-extraworker"]["spec"])

    assert wait_for(lambda: backend.status(RUN, space).all_run)
    status = backend.status(RUN, space)
    assert status.phase is Phase.RUNNING
    (waiting,) = (role for role in status.roles if role.role == "extra-worker")
    assert waiting.message == "2 of 2 tasks: waits for admission by queue team-a"
    assert backend.scale(RUN, space, 4) == 3
    assert (job()["completions"], job()["parallelism"]) == (3, 3)

    backend.suspend(RUN, space)
    workload = api.request("GET", controllers.path("workloads", RUN)).body
    assert (workload["spec"]["active"], job()["suspend"]) == (False, True)
    backend.resume(RUN, space)
    workload = api.request("GET", controllers.path("workloads", RUN)).body
    assert (workload["spec"]["active"], job()["suspend"]) == (True, False)


def test_no_such_queue(
    api: Api,
    backend: KubernetesBackend,
    controllers: Controllers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = controllers.namespace
    with pytest.raises(BackendError) as error:
        backend.submit(plan(tmp_path, space, "spec.scheduling={queue: team-b}"), detach=True)
    assert error.value.message == f"there is no LocalQueue team-b in namespace {space}, to admit the run"
    assert "kubectl get localqueues" in error.value.hint
    assert api.list("Job", space) == []
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(api, tmp_path, namespace=space)))
    file = str(tmp_path / "cluster.yaml")
    assert parser.main(["doctor", file, "--set", "spec.scheduling={queue: team-b}"]) == 5
    assert f"there is no LocalQueue team-b in namespace {space}" in capsys.readouterr().out
    assert parser.main(["doctor", file, "--set", QUEUE]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ok +queue +team-a is there$", out, re.MULTILINE)
    assert re.search(
        r"^warning +JobSet +is not installed: a run that waits .* a group of pods$", out, re.MULTILINE
    )


@pytest.mark.usefixtures("with_jobset")
def test_the_printed_role_is_enough(
    api: Api,
    controllers: Controllers,
    kubelet: Kubelet,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    space = kubelet.namespace
    planned = plan(tmp_path, space, QUEUE)
    file = str(tmp_path / "cluster.yaml")
    assert parser.main(["doctor", file, "--set", QUEUE, "--role", "-n", space]) == 0
    rules = yaml.safe_load(capsys.readouterr().out)["rules"]
    assert "podgroups" not in json.dumps(rules)
    backend = KubernetesBackend(str(user(api, space, rules, tmp_path)))
    backend.submit(planned, detach=True)
    controllers.make_jobs()
    controllers.workload("jobset-mnist-1", controllers.jobset())
    assert next(backend.follow(RUN, space)).status.phase is Phase.SUSPENDED
    assert [run_status.run for run_status in backend.runs(space)] == [RUN]
    assert list(backend.events(RUN, space, follow=False)) is not None
    backend.suspend(RUN, space)
    backend.resume(RUN, space)
    backend.delete(RUN, space)
    assert jobsets.listed(backend_for(api)._client, space, RUN) == []
