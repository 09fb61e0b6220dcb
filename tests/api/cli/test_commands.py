"""Commands and options that need a cluster, on a real API server."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher.run
from launcher.backends.base import Selection
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.deploy.submission import Submission
from launcher.cli import from_file, live_view, parser
from launcher.status import Phase
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, Follower, plan, start_all
from tests.api.users import kubeconfig, user
from worker.contract.records import Event, Record

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line: returns exit code, standard output and standard error."""
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = parser.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The cluster file of the other tests, without a namespace."""
    plan(tmp_path, "default")
    return str(tmp_path / "cluster.yaml")


def in_context(
    api: Api, namespace: str, directory: Path, monkeypatch: pytest.MonkeyPatch, *names: str
) -> None:
    """Makes the namespace that of the current context, or of contexts with these names that are
    not current.
    """
    document = yaml.safe_load(kubeconfig(api, directory, namespace=namespace).read_text())
    if names:
        (context,) = document["contexts"]
        document["contexts"] = [{**context, "name": name} for name in names]
        document["current-context"] = "gone"
    path = directory / "own-kubeconfig"
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(path))


def test_the_context_s_own_namespace(
    api: Api, run: Run, file: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_context(api, namespace, tmp_path, monkeypatch)
    code, out, _ = run("submit", file, "--detach")
    assert (code, out) == (0, "run mnist is submitted; see: python -m launcher status mnist\n")
    assert len(api.list("Job", namespace)) == 4
    (worker,) = (job for job in api.list("Job", namespace) if job["metadata"]["name"] == "mnist-worker")
    assert ".mnist:2222" in str(worker["spec"]["template"])
    assert "run mnist is starting" in run("status", RUN)[1]
    assert run("delete", RUN)[0] == 0


def test_another_context(
    api: Api, run: Run, file: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_context(api, namespace, tmp_path, monkeypatch, "other")
    code, out, _ = run("submit", file, "--detach", "--context", "other")
    assert (code, out) == (
        0,
        "run mnist is submitted; see: python -m launcher status mnist --context other\n",
    )
    assert run("status", RUN, "--context", "other")[0] == 0
    assert RUN in run("list", "--context", "other")[1]
    code, _, err = run("status", RUN, "--context", "third")
    assert code == 5
    assert "there is no context third" in err
    assert run("delete", RUN, "--context", "other")[0] == 0


def test_a_namespace_of_the_command_line(api: Api, run: Run, file: str, namespace: str) -> None:
    code, out, _ = run("submit", file, "--detach", "-n", namespace)
    assert (code, f"status mnist -n {namespace}" in out) == (0, True)
    assert RUN in run("list", "--backend", "kubernetes", "-n", namespace)[1]
    code, _, err = run("submit", file, "-n", namespace, "--set", "metadata.namespace=vision")
    assert code == 2
    assert f"metadata.namespace: the file says vision, and --namespace {namespace}" in err


def test_dry_runs(api: Api, run: Run, file: str, namespace: str) -> None:
    space = ("-n", namespace)
    code, out, _ = run("submit", file, "--dry-run", "client", *space)
    assert code == 0
    assert out.splitlines()[0] == "Job mnist-chief"
    assert "nothing was done" in out
    code, out, _ = run("submit", file, "--dry-run=server", *space)
    assert code == 0
    assert "Job mnist-chief would be created" in out
    code, _, err = run("submit", file, "--dry-run=server", *space, "--set", "spec.podLabels=3")
    assert code == 2
    wrong = "spec.worker.podTemplate.spec.runtimeClassName=A_B"
    code, _, err = run("submit", file, "--dry-run=server", *space, "--set", wrong)
    assert code == 5
    assert "runtimeClassName" in err
    assert api.list("Job", namespace) == []
    assert run("submit", file, "--dry-run=server", "--backend=local")[0] == 2


def test_a_dry_run_of_the_client_asks_nobody(
    run: Run, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    code, out, _ = run("submit", file, "--dry-run=client")
    assert code == 0
    assert "run mnist, namespace default: a submission makes these objects in the cluster" in out


def test_replace(api: Api, run: Run, file: str, namespace: str) -> None:
    assert run("submit", file, "--detach", "-n", namespace)[0] == 0
    wider = ("submit", file, "--detach", "-n", namespace, "--set", "spec.worker.replicas=3")
    code, _, err = run(*wider)
    assert code == 4
    assert "spec.worker.replicas: 2 -> 3" in err
    code, _, err = run(*wider, "--replace")
    assert code == 0
    assert "run mnist, which went on, is deleted and replaced\n" in err
    assert sum(1 for job in api.list("Job", namespace) if job["spec"]["completions"] == 3) == 1


@pytest.mark.parametrize("when", ["reading", "making", "made", "before the first update"])
def test_who_interrupts_a_submission_learns_what_is_left(
    api: Api, run: Run, file: str, namespace: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    target, name = {
        "reading": (from_file, "load"),
        "making": (Submission, "_take_over"),
        "made": (launcher.run.Run, "__init__"),
        "before the first update": (live_view, "watch"),
    }[when]
    original = getattr(target, name)
    once = iter([signal.SIGINT])

    def interrupted(*arguments: Any, **options: Any) -> Any:
        for number in once:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        return original(*arguments, **options)

    monkeypatch.setattr(target, name, interrupted)
    code, out, err = run("submit", file, "-n", namespace)
    goes_on = f"is still running; `python -m launcher wait {RUN} -n {namespace}` follows it again"
    assert code == 130
    assert {
        "reading": "interrupted; nothing was made\n",
        "making": f"interrupted; there is no run {RUN}\n",
        "made": f"run {RUN} {goes_on}\n",
        "before the first update": goes_on,
    }[when] in out + err
    assert len(api.list("Job", namespace)) == {"reading": 0, "making": 0}.get(when, 4)


def test_the_printed_role_is_enough_for_the_whole_life_of_a_run(
    api: Api, kubelet: Kubelet, run: Run, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("doctor", "--role", "-n", kubelet.namespace)
    role = yaml.safe_load(out)
    assert (code, role["kind"], role["metadata"]["namespace"]) == (0, "Role", kubelet.namespace)
    monkeypatch.setenv("KUBECONFIG", str(user(api, kubelet.namespace, role["rules"], tmp_path)))

    # The API server knows a Role only after a moment.
    assert wait_for(lambda: run("doctor")[0] == 0)
    out = run("doctor")[1]
    assert "missing" not in out
    assert "unknown  namespace " in out
    assert out.endswith("\na run can be submitted\n")
    assert run("submit", file, "--dry-run=server")[0] == 0
    assert run("submit", file, "--detach")[0] == 0
    assert run("submit", file, "--detach", "--set", "spec.worker.replicas=1", "--replace")[0] == 0
    assert run("status", RUN)[0] == 0
    assert run("suspend", RUN)[0] == 0
    assert run("resume", RUN)[0] == 0
    for role_name in ("chief", "worker", "ps", "evaluator"):
        kubelet.start(role_name)
    assert RUN in run("list", "--backend", "kubernetes")[1]
    assert "SuccessfulCreate" in run("events", RUN)[1]
    assert run("logs", RUN, "--previous")[0] == 0
    code, out, _ = run("wait", RUN, "--for=running", "--timeout=60")
    assert (code, "all tasks are running" in out) == (0, True)
    for pod in kubelet.pods():
        kubelet.end(pod, 0)
    code, out, _ = run("wait", RUN)
    assert (code, "run mnist has succeeded" in out) == (0, True)
    code, out, _ = run("delete", RUN)
    assert code == 0
    assert "what it has trained stays, on PersistentVolumeClaim mnist-model" in out


def test_a_doctor_s_findings(
    api: Api, run: Run, file: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0", "requests.cpu": "2"}}}
    path = f"api/v1/namespaces/{namespace}/resourcequotas"
    assert api.request("POST", path, quota).status == 201
    assert wait_for(lambda: "used" in api.request("GET", f"{path}/small").body.get("status", {}))
    code, out, _ = run("doctor", "-n", namespace)
    assert code == 0
    assert re.search(r"^ok +API server +https://127.0.0.1:\d+ \(context .*\) runs Kubernetes 1\.", out)
    assert "the namespace enforces restricted, which runs meet" in out
    assert "small: pods 0 of 0, requests.cpu 0 of 2 used: no pods left" in out
    assert re.search(r"^unknown +NetworkPolicy ", out, re.MULTILINE)
    assert re.search(r"^unknown +images ", out, re.MULTILINE)

    elsewhere = ("--set", "metadata.namespace=nowhere")
    for where in (("-n", "nowhere"), (file, *elsewhere)):
        code, out, _ = run("doctor", *where)
        assert code == 5
    assert yaml.safe_load(run("doctor", "--role", file, *elsewhere)[1])["metadata"]["namespace"] == "nowhere"
    assert re.search(r"^missing +namespace +there is no namespace nowhere$", out, re.MULTILINE)

    jobs_only = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]
    monkeypatch.setenv("KUBECONFIG", str(user(api, namespace, jobs_only, tmp_path)))
    assert wait_for(lambda: re.search(r"^ok +right to jobs ", run("doctor")[1], re.MULTILINE))
    code, out, _ = run("doctor")
    assert code == 5
    assert re.search(r"^missing +right to services +you may not get, list, create", out, re.MULTILINE)
    assert re.search(r"^warning +right to events +you may not list, watch$", out, re.MULTILINE)
    assert "Without it, why a pod is not made is not told." in out
    assert "the namespace's quotas" in out
    assert re.search(r"^unknown +DNS +you may not look at its pods in kube-system$", out, re.MULTILINE)
    role = yaml.safe_load(out[out.index("---") :])
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", namespace)


def test_whether_the_cluster_s_dns_runs(api: Api, run: Run, namespace: str) -> None:
    def said(pattern: str) -> bool:
        code, out, _ = run("doctor", "-n", namespace)
        return code == 0 and re.search(rf"^{pattern}", out, re.MULTILINE) is not None

    assert said("unknown  DNS +no pod in kube-system has the label k8s-app=kube-dns$")
    container = {"name": "coredns", "image": "coredns"}
    metadata = {"name": f"dns-of-{namespace}", "labels": {"k8s-app": "kube-dns"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    path = f"api/v1/namespaces/kube-system/pods/{metadata['name']}"
    assert api.request("POST", path.rpartition("/")[0], pod).status == 201
    try:
        assert said("warning  DNS +0 of 1 pods of kube-system with the label k8s-app=kube-dns are ready$")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        assert api.patch(f"{path}/status", ready, "application/merge-patch+json").status == 200
        assert said("ok +DNS +1 of 1 pods of kube-system")
    finally:
        api.request("DELETE", path, {"gracePeriodSeconds": 0})


def test_events(api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path) -> None:
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    backend.submit(plan(tmp_path, space, "metadata.name=other"), detach=True)
    (chief,) = (pod for pod in kubelet.pending("chief", 2) if pod["spec"]["hostname"] == "mnist-chief-0")
    metadata = chief["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "placed", "namespace": space},
        "involvedObject": {
            "kind": "Pod",
            "uid": metadata["uid"],
            "name": metadata["name"],
            "namespace": space,
        },
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/3 nodes are available:\n3 Insufficient cpu.",
        "count": 4,
        "firstTimestamp": "2099-01-01T00:00:00Z",
        "lastTimestamp": "2099-01-01T00:00:04Z",
    }
    assert api.create(event, space).status == 201
    assert wait_for(lambda: len(list(backend.events(RUN, space, follow=False))) == 6)
    events = list(backend.events(RUN, space, follow=False))
    assert {each.about for each in events[:5]} == {
        f"Job mnist-{role}" for role in ("chief", "worker", "ps", "evaluator")
    }
    assert [each.time for each in events] == sorted(each.time for each in events)
    last = events[-1]
    assert (last.about, last.warning, last.count) == ("chief 0", True, 4)
    assert last.message == "0/3 nodes are available: 3 Insufficient cpu."


def test_events_are_followed_to_the_run_s_end(
    backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, kubelet.namespace), detach=True)
    followed = backend.events(RUN, kubelet.namespace, follow=True)
    first = next(followed)
    assert first.reason == "SuccessfulCreate"
    start_all(kubelet)
    for pod in kubelet.pods():
        kubelet.end(pod, 0)
    reasons = [(each.about, each.reason) for each in followed]
    assert ("Job mnist-chief", "Completed") in reasons
    assert len(reasons) == len(set(reasons)) + 1  # the worker had two pods


def test_restarts_in_the_pods_of_all_roles(
    api: Api, follower: Follower, kubelet: Kubelet, run: Run, tmp_path: Path
) -> None:
    space = kubelet.namespace
    with node(api, tmp_path, space) as served:
        for role, count in {"chief": 1, "worker": 2, "ps": 1}.items():
            for pod in kubelet.pending(role, count):
                bind(api, pod, space)
                name = pod["spec"]["hostname"]
                again = Record(Event.RESTARTED, name, 1_767_225_610.0, {"exit_code": 137, "restart": 2})
                served.write(pod["metadata"]["name"], "begins", again.line(), *["trains"] * 100)
                kubelet.set(pod, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        follower.until(lambda status: [role.ready for role in status.roles[:3]] == [1, 2, 1])
        roles = json.loads(run("status", RUN, "-n", space, "-o", "json")[1])["status"]["roles"]
        restarts = {role["role"]: (role["restarts"], role["restartsInPlace"]) for role in roles}
        assert restarts == {"chief": (0, 2), "worker": (0, 4), "ps": (0, 2), "evaluator": (0, 0)}

        # Who follows the run reads only the logs that tell of its progress, until the end.
        for pod in kubelet.pods():
            served.end(pod["metadata"]["name"])
            kubelet.end(pod, 0)
        last = follower.until(lambda status: status.ended)
        assert {role: last.restarts_in_place(role) for role in ("chief", "worker", "ps")} == {
            "chief": 2,
            "worker": 4,
            "ps": 2,
        }


def test_logs_of_previous_pods_and_of_late(
    api: Api, backend: KubernetesBackend, follower: Follower, kubelet: Kubelet, run: Run, tmp_path: Path
) -> None:
    space = kubelet.namespace
    with node(api, tmp_path, space) as served:
        first = kubelet.pending("worker", 2)[1]
        bind(api, first, space)
        served.write(first["metadata"]["name"], "the first one begins", "it does not fit")
        kubelet.set(first, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        kubelet.end(first, 137, "OOMKilled")
        status = follower.until(lambda status: any(role.restarts for role in status.roles))
        assert status.phase is Phase.PENDING
        (second,) = (pod for pod in kubelet.pending("worker", 2) if pod["spec"]["hostname"].endswith("-1"))
        bind(api, second, space)
        served.write(second["metadata"]["name"], "the second one begins")
        kubelet.set(second, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})

        def texts(**chosen: object) -> list[str]:
            selection = Selection(("worker",), (1,), **chosen)  # type: ignore[arg-type]
            return [line.text for line in backend.logs(RUN, space, selection, follow=False)]

        assert texts() == ["the first one begins", "it does not fit", "the second one begins"]
        assert texts(previous=True) == ["the first one begins", "it does not fit"]
        assert wait_for(lambda: backend.status(RUN, space).roles[1].ready == 1)
        served.write(second["metadata"]["name"], "it is late", at="2099-01-01T00:00:00")
        assert texts(since=60.0) == ["it is late"]

        out = run("status", RUN, "-n", space)[1]
        assert re.search(rf"^worker +1 +0/2 +1 +1 +{space} +Running", out, re.MULTILINE)
        ended = "ended with exit code 137 (SIGKILL): out of memory"
        assert f"worker 1: started again once; the last time it {ended}\n" in out
        assert "  The end of its log:\n  the first one begins\n  it does not fit" in out.replace(" \n", "\n")
        assert run("logs", RUN, "-n", space, "--previous", "-f")[0] == 2

        name = second["metadata"]["name"]
        assert run("logs", RUN, name, "-n", space, "--timestamps", "--tail", "1") == (
            0,
            "2099-01-01T00:00:00.000Z worker-1    | it is late\n",
            "",
        )
        assert run("logs", RUN, "worker-1", "-n", space, "--raw", "--tail", "1", "--previous") == (
            0,
            "it does not fit\n",
            "",
        )
        for more in ([], ["-f"]):
            code, out, err = run("logs", RUN, "-n", space, "--role", "worker", "--index", "7", *more)
            assert (code, out) == (3, "")
            assert err.startswith("error: run mnist has no worker 7\nIt has 1 chief, 2 workers, 1 ps and")


def test_lists_of_both_places(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, run: Run, tmp_path: Path
) -> None:
    """The list has the cluster's run, its place, its progress and its details."""
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space, "metadata.labels.team=vision"), detach=True)
    here = tmp_path / "here.yaml"
    here.write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: here}\n"
        "spec: {strategy: Custom, worker: {command: [python, -c, pass]}}\n"
    )
    assert run("submit", str(here), "--backend", "local", "--detach")[0] == 0
    assert run("wait", "here", "--timeout", "60s")[0] == 0
    fields = {"epoch": 2, "epochs": 3, "step": 5, "steps": 9, "steps_per_second": 1.5, "loss": None}
    record = Record(Event.PROGRESS, "mnist-chief-0", 1.0, {**fields, "metrics": {}, "epoch_end": False})
    with node(api, tmp_path, space) as served:
        (chief,) = kubelet.pending("chief")
        bind(api, chief, space)
        served.write(chief["metadata"]["name"], record.line())
        kubelet.set(chief, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        assert wait_for(lambda: backend.status(RUN, space).roles[0].ready == 1)
        code, out, err = run("list")
        assert (code, err) == (0, "")
        assert out.splitlines()[0].split()[-1] == "WHERE"
        (local,) = (line for line in out.splitlines() if "here" in line)
        assert local.endswith("this machine")
        (remote,) = (line for line in out.splitlines() if space in line)
        assert re.search(r"mnist +Running +epoch 2/3, step 5/9 +1 chief, 2 worker, 1 ps, 1 evaluator", remote)
        items = json.loads(run("list", "-o", "json", "-l", "team=vision", "-n", space)[1])["items"]
        (item,) = items
        assert (item["backend"], item["status"]["progress"]["epoch"]) == ("kubernetes", 2)
        assert f"context {item['context']}" in remote
        assert item["metadata"]["creationTimestamp"].startswith(str(time.gmtime().tm_year))
        document = json.loads(run("status", RUN, "-n", space, "-o", "json")[1])
        assert document["status"]["modelDirectory"] == "/model on PersistentVolumeClaim mnist-model"
        assert document["status"]["tasks"][0]["pod"] == chief["metadata"]["name"]
        out = run("describe", RUN, "-n", space)[1]
        assert f"namespace    {space}" in out
        assert "SuccessfulCreate" in out
        assert chief["metadata"]["name"] in out
    kubelet.end(chief, 0)  # a pod on a node is gone when its kubelet says so
    assert run("delete", "here")[0] == 0
    assert run("delete", "--all", "--backend", "kubernetes", "-n", space)[1].startswith(
        "run mnist is deleted"
    )
