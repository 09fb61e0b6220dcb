"""The controller of TFJobs as a process beside a real API server with its Job controller; the test plays the
kubelet. What real pods and the Kubeflow SDK see of it is in tests/kind.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.tfjob import conversion
from tests.api.conftest import ROOT, installed, restricted_namespace
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for

TFJOBS = "apis/kubeflow.org/v1/namespaces/{}/tfjobs"
LEASES = "apis/coordination.k8s.io/v1/namespaces/{}/leases"


@dataclass
class Controller:
    """A controller of one namespace, as a process."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def metrics(self) -> str:
        (port,) = re.findall(r"serves .*:(\d+)", self.printed)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def leads(self) -> bool:
        assert self.process.poll() is None, self.printed
        return "leads, and trains" in self.printed


@pytest.fixture(scope="module")
def kind(api: Api) -> Iterator[None]:
    """The kind TFJob, by our own definition."""
    with installed(api, ROOT / "manifests" / "controller" / "crd.yaml"):
        yield


@contextmanager
def started(api: Api, namespace: str, folder: Path, home: str = "") -> Iterator[Controller]:
    """A controller that trains the namespace's TFJobs, once it runs. `home` has its lease."""
    log = folder / f"controller-{time.monotonic_ns()}.log"
    arguments = ["--namespace", namespace, "--lease-namespace", home or namespace]
    arguments += ["--address", "127.0.0.1:0"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher", "controller", *arguments],
            env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    controller = Controller(process, log)
    try:
        assert wait_for(lambda: "serves " in log.read_text() or process.poll() is not None)
        assert process.poll() is None, controller.printed
        yield controller
    finally:
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGKILL), controller.printed


@pytest.fixture
def controller(api: Api, kind: None, kubelet: Kubelet, tmp_path: Path) -> Iterator[Controller]:
    """A controller that leads."""
    with started(api, kubelet.namespace, tmp_path) as one:
        assert wait_for(one.leads), one.printed
        yield one


def a_tfjob(replicas: dict[str, Any], name: str = "click", **fields: Any) -> dict[str, Any]:
    """A TFJob with these replicas, each a count or its own fields."""
    container = {"name": "tensorflow", "image": "example.com/a:1"}
    specs: dict[str, Any] = {}
    for kind, given in replicas.items():
        replica_fields = {"replicas": given} if isinstance(given, int) else given
        specs[kind] = {"template": {"spec": {"containers": [container]}}, **replica_fields}
    metadata = {"name": name, **fields.pop("metadata", {})}
    spec = {"tfReplicaSpecs": specs, **fields}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": spec}


class Jobs:
    """The TFJobs of one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = TFJOBS.format(namespace)
        self._namespace = namespace

    def make(self, item: dict[str, Any]) -> None:
        made = self._api.request("POST", self._path, item)
        assert made.status == 201, made.body

    def get(self, name: str = "click") -> dict[str, Any]:
        return self._api.request("GET", f"{self._path}/{name}").body

    def change(self, patch: dict[str, Any], name: str = "click", part: str = "") -> None:
        path = f"{self._path}/{name}{part}"
        changed = self._api.patch(path, patch, "application/merge-patch+json")
        assert changed.status == 200, changed.body

    def delete(self, name: str = "click") -> None:
        self._api.request("DELETE", f"{self._path}/{name}")

    def holds(self, condition: str, name: str = "click", seconds: float = 30) -> dict[str, Any]:
        """Waits until the condition is true, and returns it."""

        def found() -> Any:
            conditions = (self.get(name).get("status") or {}).get("conditions") or ()
            return [each for each in conditions if each["type"] == condition and each["status"] == "True"]

        one = wait_for(found, seconds)
        assert one, self.get(name).get("status")
        return dict(one[0])

    def status(self, name: str = "click") -> dict[str, Any]:
        return dict(self.get(name)["status"])

    def events(self, name: str = "click") -> list[str]:
        return [
            event["reason"]
            for event in sorted(
                self._api.list("Event", self._namespace),
                key=lambda event: event["metadata"]["creationTimestamp"],
            )
            if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("TFJob", name)
        ]

    def runs(self) -> list[str]:
        return [job["metadata"]["name"] for job in self._api.list("Job", self._namespace)]


@pytest.fixture
def jobs(api: Api, kubelet: Kubelet) -> Jobs:
    return Jobs(api, kubelet.namespace)


def test_a_cluster_without_the_kind_is_told_what_to_do(api: Api, namespace: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "controller", "--lease-namespace", namespace],
        env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 5
    assert "the cluster does not know the kind TFJob (kubeflow.org/v1)" in done.stderr
    assert "manifests/controller/crd.yaml" in done.stderr
    assert json.dumps(done.stderr).count("Traceback") == 0


def test_a_tfjob_is_trained_labelled_counted_and_deleted_with_its_run(
    api: Api, controller: Controller, kubelet: Kubelet, jobs: Jobs
) -> None:
    jobs.make(a_tfjob({"Chief": 1, "Worker": 2}, runPolicy={"cleanPodPolicy": "None"}))
    jobs.holds("Created")
    assert jobs.get()["spec"]["runPolicy"] == {"cleanPodPolicy": "None"}
    (chief,) = kubelet.start("chief")
    workers = kubelet.start("worker", 2)
    jobs.holds("Running")
    wait_for(lambda: jobs.status()["replicaStatuses"]["Worker"]["active"] == 2)
    assert jobs.status()["replicaStatuses"]["Worker"] == {"active": 2, "succeeded": 0, "failed": 0}

    def labels() -> list[dict[str, str]]:
        pod_labels = [pod["metadata"]["labels"] for pod in kubelet.pods()]
        return pod_labels if all("training.kubeflow.org/replica-index" in each for each in pod_labels) else []

    named = [
        [
            each.get(f"training.kubeflow.org/{name}")
            for name in ("job-name", "replica-type", "replica-index", "job-role")
        ]
        for each in wait_for(labels)
    ]
    assert named == [
        ["click", "chief", "0", "master"],
        ["click", "worker", "0", None],
        ["click", "worker", "1", None],
    ]
    for pod in (chief, *workers):
        kubelet.end(pod, 0)
    jobs.holds("Succeeded")
    status = jobs.status()
    assert status["replicaStatuses"]["Chief"] == {"active": 0, "succeeded": 1, "failed": 0}
    assert {"startTime", "completionTime", "lastReconcileTime"} <= status.keys()
    assert wait_for(lambda: sorted(jobs.events()) == ["TFJobCreated", "TFJobRunning", "TFJobSucceeded"])
    assert 'tf_launcher_tfjobs{condition="Succeeded"} 1.0' in controller.metrics()
    assert "tf_launcher_controller_leads 1.0" in controller.metrics()
    jobs.delete()
    # The garbage collector looks for new kinds every 30 s.
    assert wait_for(lambda: not jobs.runs() and not kubelet.pods(), seconds=90)
    assert "Traceback" not in controller.printed


def test_what_is_not_taken(api: Api, controller: Controller, kubelet: Kubelet, jobs: Jobs) -> None:
    jobs.make(a_tfjob({"Worker": 1, "Workers": 1}, name="wrong"))
    jobs.make(a_tfjob({"Worker": 1}, name="theirs", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    finalizers = {"finalizers": ["training.kubeflow.org/cleanup"]}
    jobs.make(a_tfjob({"Worker": 1}, name="held", metadata=finalizers))
    gang = {"schedulingPolicy": {"minAvailable": 2}}
    jobs.make(a_tfjob({"worker": 2}, name="gang", runPolicy=gang))
    failed = jobs.holds("Failed", "wrong")
    assert failed["reason"] == "TFJobFailedValidation"
    assert "spec.tfReplicaSpecs.Workers: unknown replica type" in failed["message"]
    assert wait_for(lambda: jobs.events("held") == ["TFJobNotStarted"])
    assert "status" not in jobs.get("theirs")
    assert jobs.get("held")["spec"]["runPolicy"] == {}, "the Kubeflow SDK reads none without it"
    jobs.holds("Created", "gang")
    assert wait_for(lambda: "TFJobNotStarted" in jobs.events("gang")), "the cluster has no Volcano"
    assert jobs.runs() == []
    jobs.change({"metadata": {"finalizers": None}}, "held")
    jobs.holds("Created", "held")


@pytest.mark.thorough
def test_one_that_another_controller_has_begun_is_left_alone(
    api: Api, kind: None, kubelet: Kubelet, jobs: Jobs, tmp_path: Path
) -> None:
    jobs.make(a_tfjob({"Worker": 1}))
    created = {"type": "Created", "status": "True", "reason": "TFJobCreated", "message": "by the operator"}
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    created |= {"lastUpdateTime": now, "lastTransitionTime": now}
    jobs.change({"status": {"conditions": [created]}}, part="/status")
    with started(api, kubelet.namespace, tmp_path) as controller:
        assert wait_for(lambda: jobs.events() == ["TFJobNotStarted"]), controller.printed
        assert jobs.runs() == []
        assert jobs.status()["conditions"] == [created]


def test_a_failure_is_tried_again_and_the_last_one_is_the_tfjobs(
    controller: Controller, kubelet: Kubelet, jobs: Jobs
) -> None:
    worker = {"replicas": 2, "restartPolicy": "OnFailure"}
    jobs.make(a_tfjob({"Worker": worker}, runPolicy={"backoffLimit": 1, "cleanPodPolicy": "Running"}))
    second = kubelet.start("worker", 2)[1]
    jobs.holds("Running")
    kubelet.end(second, 1)
    assert "Worker replica(s) failed" in jobs.holds("Restarting")["message"]
    (again,) = kubelet.start("worker")
    jobs.holds("Running")
    kubelet.end(again, 1)
    failed = jobs.holds("Failed")
    assert failed["reason"] == "TFJobFailed"
    assert "click-worker-1: exit code 1" in failed["message"]
    kubelet.finish_deleted()
    assert jobs.status()["conditions"][-1]["type"] == "Failed"
    assert "Running" not in [pod["status"]["phase"] for pod in kubelet.pods()]


@pytest.mark.thorough
def test_a_tfjob_is_suspended_and_resumed(controller: Controller, kubelet: Kubelet, jobs: Jobs) -> None:
    jobs.make(a_tfjob({"Worker": 1}, runPolicy={"suspend": True}))
    jobs.holds("Suspended")
    assert jobs.runs() == [], "nothing is made for one that is suspended from the beginning"
    jobs.change({"spec": {"runPolicy": {"suspend": False}}})
    kubelet.start("worker")
    jobs.holds("Running")
    jobs.change({"spec": {"runPolicy": {"suspend": True}}})
    jobs.holds("Suspended")
    kubelet.finish_deleted()
    jobs.change({"spec": {"runPolicy": {"suspend": None}}})
    (pod,) = kubelet.start("worker")
    jobs.holds("Running")
    kubelet.end(pod, 0)
    jobs.holds("Succeeded")
    conditions = [each["type"] for each in jobs.status()["conditions"] if each["status"] == "True"]
    assert conditions == ["Created", "Succeeded"]


def test_a_controller_that_was_killed_starts_nothing_twice_and_misses_no_end(
    api: Api, kind: None, kubelet: Kubelet, jobs: Jobs, tmp_path: Path
) -> None:
    with started(api, kubelet.namespace, tmp_path) as first:
        jobs.make(a_tfjob({"Worker": 1}, runPolicy={"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 8}))
        (pod,) = kubelet.start("worker")
        jobs.holds("Running")
        before = api.list("Job", kubelet.namespace)[0]["metadata"]["uid"]
        first.process.kill()
        first.process.wait()
    kubelet.end(pod, 0)
    wait_for(lambda: api.list("Job", kubelet.namespace)[0].get("status", {}).get("succeeded") == 1)
    (lease,) = api.request("GET", LEASES.format(kubelet.namespace)).body["items"]
    api.request("DELETE", f"{LEASES.format(kubelet.namespace)}/{lease['metadata']['name']}")
    with started(api, kubelet.namespace, tmp_path) as second:
        jobs.holds("Succeeded")
        assert api.list("Job", kubelet.namespace)[0]["metadata"]["uid"] == before
        assert wait_for(lambda: not kubelet.pods()), "cleanPodPolicy All"
        assert jobs.holds("Succeeded"), "the pods went before the TFJob did"
        assert wait_for(lambda: jobs.get().get("code") == 404), "its time to live is over"
        assert wait_for(lambda: not jobs.runs(), seconds=90)
        assert "Traceback" not in second.printed


def test_one_that_is_told_to_stop_leaves_its_lease_to_the_next(
    api: Api, kind: None, namespace: str, tmp_path: Path
) -> None:
    with started(api, namespace, tmp_path) as first:
        assert wait_for(first.leads), first.printed
        with started(api, namespace, tmp_path) as second:
            first.process.terminate()
            assert wait_for(second.leads, 10), "a lease that is not released is free after 15 s"


def test_two_installations_for_one_namespace_share_its_tfjobs(
    api: Api, controller: Controller, kubelet: Kubelet, jobs: Jobs, tmp_path: Path
) -> None:
    names = [f"click-{number}" for number in range(4)]
    with (
        restricted_namespace(api) as home,
        started(api, kubelet.namespace, tmp_path, home) as second,
    ):
        assert wait_for(second.leads), second.printed
        for name in names:
            jobs.make(a_tfjob({"Worker": 1}, name=name))
        for name in names:
            jobs.holds("Created", name)
        kubelet.start("worker", len(names))
        for name in names:
            jobs.holds("Running", name)
            assert sorted(jobs.events(name)) == ["TFJobCreated", "TFJobRunning"]
        controller.process.terminate()
        controller.process.wait()
        for pod in kubelet.pods():
            kubelet.end(pod, 0)
        for name in names:
            jobs.holds("Succeeded", name, 60)
        assert wait_for(lambda: [len(jobs.events(name)) for name in names] == [3] * len(names))


@pytest.mark.thorough
def test_one_of_two_leads_and_a_training_operator_beside_it_is_noticed(
    api: Api, kind: None, kubelet: Kubelet, jobs: Jobs, tmp_path: Path
) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "1ca428e5.training-operator.kubeflow.org"},
        "spec": {"holderIdentity": "training-operator-7c", "renewTime": now, "leaseDurationSeconds": 15},
    }
    made = api.request("POST", LEASES.format(kubelet.namespace), lease)
    assert made.status == 201, made.body
    with started(api, kubelet.namespace, tmp_path) as first:
        assert wait_for(first.leads), first.printed
        with started(api, kubelet.namespace, tmp_path) as second:
            jobs.make(a_tfjob({"Worker": 1}))
            assert wait_for(lambda: "a training-operator runs in namespace" in first.printed)
            assert "scale deployment training-operator --replicas=0" in first.printed
            time.sleep(3)
            assert jobs.runs() == []
            assert "status" not in jobs.get()
            assert "tf_launcher_controller_leads 0.0" in second.metrics()
            assert not second.leads()


CORPUS = sorted((ROOT / "tests" / "specs" / "valid").glob("tfjob-*.yaml"))


@pytest.mark.thorough
def test_every_tfjob_of_the_corpus_ends_as_the_operator_had_it_end(
    api: Api, controller: Controller, kubelet: Kubelet, jobs: Jobs
) -> None:
    assert len(CORPUS) > 5
    for number, path in enumerate(CORPUS):
        (item,) = [each for each in yaml.safe_load_all(path.read_text()) if each]
        given = item["metadata"]
        name = f"corpus-{number}"
        item["metadata"] = {"name": name, "labels": given.get("labels") or {}}
        if item["apiVersion"] != "kubeflow.org/v1":
            continue  # the API server has v1 alone
        item.pop("status", None)
        queued = "kueue.x-k8s.io/queue-name" in item["metadata"]["labels"]
        if queued or (item["spec"].get("runPolicy") or {}).get("schedulingPolicy"):
            continue  # what starts these is not in the test's control plane
        jobs.make(item)
        jobs.holds("Created", name)
        suspended = (item["spec"].get("runPolicy") or {}).get("suspend")
        if suspended:
            jobs.holds("Suspended", name)
            jobs.change({"spec": {"runPolicy": {"suspend": False}}}, name)
        until = time.monotonic() + 60
        while "completionTime" not in (jobs.get(name).get("status") or {}) and time.monotonic() < until:
            for pod in kubelet.pods():
                if pod["status"]["phase"] == "Pending":
                    kubelet.set(pod, "Running", {"running": {"startedAt": "2026-01-01T00:00:05Z"}})
                elif pod["status"]["phase"] == "Running":
                    kubelet.end(pod, 0)
            time.sleep(0.2)
        jobs.holds("Succeeded", name)
        counts = jobs.status(name)["replicaStatuses"]
        for key, replicas in item["spec"]["tfReplicaSpecs"].items():
            if replicas.get("replicas") != 0:
                (kind,) = conversion.roles([key]).values()
                assert counts[kind]["failed"] == 0, path.name
        jobs.delete(name)
        wait_for(lambda: not jobs.runs(), seconds=90)


@pytest.mark.thorough
def test_one_with_a_queues_label_is_the_launchers_queued_run(
    api: Api, kind: None, kubelet: Kubelet, jobs: Jobs, tmp_path: Path
) -> None:
    kueue = [f"kueue.x-k8s.io_{name}" for name in ("workloads", "localqueues")]
    with installed(api, "jobset.x-k8s.io_jobsets", *kueue), started(api, kubelet.namespace, tmp_path) as one:
        assert wait_for(one.leads)
        queue: dict[str, Any] = {"metadata": {"name": "team"}, "spec": {"clusterQueue": "all"}}
        queue |= {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
        path = f"apis/kueue.x-k8s.io/v1beta2/namespaces/{kubelet.namespace}/localqueues"
        assert api.request("POST", path, queue).status == 201
        label = {"kueue.x-k8s.io/queue-name": "team"}
        jobs.make(a_tfjob({"Chief": 1, "Worker": 2}, metadata={"labels": label}))
        jobs.holds("Created")
        sets = f"apis/jobset.x-k8s.io/v1alpha2/namespaces/{kubelet.namespace}/jobsets"
        (jobset,) = wait_for(lambda: api.request("GET", sets).body["items"])
        assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert jobset["spec"]["suspend"] is True
        (owner,) = jobset["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("TFJob", jobs.get()["metadata"]["uid"])
        jobs.holds("Suspended")
        time.sleep(3)
        assert api.request("GET", sets).body["items"][0]["spec"]["suspend"] is True, (
            "it is the queue's to resume"
        )
