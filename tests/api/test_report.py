"""The report of a run in a cluster: from a real API server's pods, their logs, and its events."""

from __future__ import annotations

import html
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.cli import parser
from launcher.errors import BackendError
from launcher.report.restarts import restarts
from launcher.report.timeline import TaskTimeline, task_timelines
from launcher.status import Phase, seconds
from tests.api.kubelet import Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, Follower, plan
from tests.api.users import user
from worker.contract.records import Record

PROGRESS = {"epoch": 2, "epochs": 2, "step": 20, "steps": 20, "steps_per_second": 5.0, "epoch_end": True}


def created(pod: dict[str, Any]) -> float:
    """Returns the creation time in seconds since the epoch."""
    time = seconds(pod["metadata"]["creationTimestamp"])
    assert time is not None
    return time


def text(time: float) -> str:
    """Returns the time in Kubernetes' format."""
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(time: float, event: str, **fields: Any) -> str:
    """Returns a record as a task prints it."""
    return Record(event, "mnist-chief-0", time, fields).line()


def live(
    kubelet: Kubelet,
    pod: dict[str, Any],
    started: float,
    running: float,
    ended: float | None = None,
    code: int = 0,
) -> None:
    """Sets the pod's times: when it was scheduled, when its image was there, and when it ended."""
    at = {"startedAt": text(running)}
    if ended is None:
        kubelet.set(pod, "Running", {"running": at}, startTime=text(started))
        return
    reason = "Error" if code else "Completed"
    state = {"terminated": {**at, "finishedAt": text(ended), "exitCode": code, "reason": reason}}
    kubelet.set(pod, "Failed" if code else "Succeeded", state, startTime=text(started))


def segments(task: TaskTimeline, begin: float) -> list[tuple[str, float, float]]:
    return [(segment.state.value, segment.start - begin, segment.end - begin) for segment in task.segments]


@pytest.mark.thorough
def test_a_run_with_a_killed_worker(
    api: Api,
    backend: KubernetesBackend,
    follower: Follower,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    space = kubelet.namespace
    with node(api, tmp_path, space) as served:
        (chief,), (first, second) = kubelet.pending("chief"), kubelet.pending("worker", 2)
        (ps,), (evaluator,) = kubelet.pending("ps"), kubelet.pending("evaluator")
        for pod in (chief, first, second, ps, evaluator):
            bind(api, pod, space)
        begin = created(chief)
        live(kubelet, chief, begin + 2, begin + 8)
        pulled = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "pulled", "namespace": space},
            "involvedObject": {"kind": "Pod", "name": chief["metadata"]["name"], "namespace": space},
            "type": "Normal",
            "reason": "Pulled",
            "message": 'Successfully pulled image "<trainer>" in 4s',
            "lastTimestamp": text(begin + 7),
        }
        assert api.create(pulled, space).status == 201
        served.write(
            chief["metadata"]["name"],
            record(begin + 10, "waiting", tasks=["mnist-ps-0"], seconds=0, deadline=900),
            record(begin + 13, "waiting", tasks=[], seconds=3.0, deadline=900),
            "a line of the program's own",
            record(begin + 13, "training", epochs=2, steps_per_epoch=20, initial_epoch=0),
            record(begin + 30, "progress", loss=0.5, metrics={"accuracy": 0.75}, **PROGRESS),
        )
        for pod in (first, ps, evaluator):
            live(kubelet, pod, begin + 1, begin + 2)
            served.write(pod["metadata"]["name"], record(begin + 9, "ready"))
        live(kubelet, second, begin + 1, begin + 2, begin + 3, 137)
        (again,) = (pod for pod in kubelet.pending("worker") if pod["spec"]["hostname"] == "mnist-worker-1")
        bind(api, again, space)
        born = created(again)  # the Job controller chooses when
        live(kubelet, again, born + 1, born + 2)
        served.write(again["metadata"]["name"], record(born + 4, "ready"))
        follower.until(lambda status: any(role.restarts for role in status.roles))

        goes_on = backend.history(RUN, space)
        assert not goes_on.status.ended
        assert goes_on.missing == []
        assert goes_on.submitted is not None
        assert abs(goes_on.submitted - begin) <= 5

        end = max(begin + 40, born + 10)
        live(kubelet, chief, begin + 2, begin + 8, end)
        live(kubelet, again, born + 1, born + 2, end)
        for pod in (first, ps, evaluator):
            live(kubelet, pod, begin + 1, begin + 2, end)
        follower.until(lambda status: status.ended)

        history = backend.history(RUN, space)
        timelines = {task.name: task for task in task_timelines(history)}
        assert segments(timelines["chief"], begin)[-7:] == [
            ("pending", 0, 2),
            ("pulling", 2, 7),
            ("preparing", 7, 8),
            ("starting", 8, 10),
            ("waiting", 10, 13),
            ("training", 13, 30),
            ("finishing", 30, end - begin),
        ]
        (restart,) = restarts(list(timelines.values()))
        assert (restart.task.name, restart.why) == ("worker 1", "killed")
        assert (restart.failed, restart.back) == (begin + 3, born + 4)
        assert len(history.attempts) == 6
        assert {(line.role, line.index, line.attempt) for line in history.lines} == {
            ("chief", 0, 0),
            ("worker", 0, 0),
            ("worker", 1, 1),
            ("ps", 0, 0),
            ("evaluator", 0, 0),
        }
        assert {"Pulled", "SuccessfulCreate", "Completed"} <= {event.reason for event in history.events}

        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert parser.main(["report", RUN, "-n", space, "-o", str(tmp_path / "run.html")]) == 0
        assert capsys.readouterr().out == f"wrote {tmp_path / 'run.html'}\n"
        page = (tmp_path / "run.html").read_text()
        assert "<trainer>" not in page
        shown = html.unescape(page)
        assert 'Pulled: Successfully pulled image "<trainer>" in 4s' in shown
        assert "pulling the image: 5.0 s, from " in shown
        assert "3.0 s</b> waiting for ps" in shown
        assert "ended with exit code 137 (SIGKILL)" in shown
        assert "Besides, worker 1 ended after " in shown


def test_who_may_not_read_events_sees_the_rest(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    kubelet.start("chief")
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get"]},
    ]
    theirs = KubernetesBackend(str(user(api, space, rules, tmp_path)))
    assert wait_for(lambda: _allowed(theirs, space))
    history = theirs.history(RUN, space)
    assert [attempt.phase for attempt in history.attempts if attempt.role == "chief"] == [Phase.RUNNING]
    assert history.events == []
    log, events = history.missing
    assert log.startswith("1 of 1 logs could not be read: ")
    assert events.startswith("The cluster's events could not be read: ")


def _allowed(backend: KubernetesBackend, namespace: str) -> bool:
    """Returns whether the Role is in effect: the API server knows it only after a moment."""
    try:
        backend.status(RUN, namespace)
    except BackendError:
        return False
    return True
