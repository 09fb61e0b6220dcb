"""The status of a run from its objects, also in the form of a Kubernetes API server."""

from __future__ import annotations

from typing import Any

import pytest

from launcher import sentences
from launcher.backends.base import LogLine
from launcher.status import Phase, RunStatus, attempts, fold, latest, seconds
from launcher.task_records import presentation
from worker.contract.records import Exported, Record, Released
from worker.contract.run_config import ElasticWorkers

EARLY, LATE, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:05:00Z", "2026-01-02T03:06:05Z"


def job(role: str, completions: int = 1, primary: bool = False, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"demo-{role}",
            "namespace": "team",
            "labels": {"tf-launcher.dev/run": "demo", "tf-launcher.dev/role": role},
            "annotations": {"tf-launcher.dev/primary": "true"} if primary else None,
        },
        "spec": {"completions": completions, "suspend": status.pop("suspend", False)},
        "status": status,
    }


def condition(kind: str, reason: str = "", message: str = "") -> list[dict[str, str]]:
    at = "2026-01-02T03:05:05Z"
    return [{"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}]


def pod(role: str, index: int, phase: str, created: str = EARLY, **more: Any) -> dict[str, Any]:
    code = more.pop("code", None)
    state: dict[str, Any] = more.pop("state", {})
    if code is not None:
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-02T03:04:35Z"}}
    return {
        "metadata": {
            "name": f"demo-{role}-{index}-x",
            "labels": {
                "batch.kubernetes.io/job-name": f"demo-{role}",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
            "creationTimestamp": created,
            **more,
        },
        "status": {
            "phase": phase,
            "startTime": created,
            "containerStatuses": [{"name": "t", "state": state}],
        },
    }


def test_nothing_has_started() -> None:
    status = fold([job("chief", primary=True), {**job("worker", 2), "status": None}], [])
    assert (status.run, status.namespace, status.phase, status.ended) == (
        "demo",
        "team",
        Phase.PENDING,
        False,
    )
    assert [(role.role, role.desired, role.active) for role in status.roles] == [
        ("chief", 1, 0),
        ("worker", 2, 0),
    ]
    assert (status.started, status.finished) == (None, None)


def elastic(completions: int, **status: Any) -> dict[str, Any]:
    """Returns the workers' Job of an elastic run: at least 2, at most 8."""
    made = job("worker", completions, **status)
    made["metadata"]["annotations"] = {"tf-launcher.dev/elastic": ElasticWorkers(2, 8, 2).to_json()}
    return made


def test_elastic_workers_run_when_as_many_as_are_needed_do() -> None:
    status = fold([job("chief", primary=True, ready=1), elastic(8, ready=1)], [])
    assert not status.all_run
    status = fold([job("chief", primary=True, ready=1), elastic(8, ready=2)], [])
    assert status.all_run
    assert status.roles[1].elastic == ElasticWorkers(2, 8, 2)


def test_a_worker_that_was_scaled_away_is_shown_until_it_has_ended() -> None:
    pods = [pod("worker", index, "Running") for index in (0, 1)]
    pods.append(pod("worker", 2, "Running", deletionTimestamp=LATE))
    pods.append(pod("worker", 3, "Failed", deletionTimestamp=LATE, code=143))
    pods.append(pod("worker", 4, "Failed", code=1))
    status = fold([job("chief", primary=True), elastic(2)], pods)
    assert [task.index for task in status.tasks] == [0, 1, 2]
    assert status.last_failure("worker") is None
    # Of a run whose workers are fixed, a pod beyond them is someone else's doing.
    status = fold([job("chief", primary=True), job("worker", 2)], pods)
    assert [task.index for task in status.tasks] == [0, 1, 2, 3, 4]


def test_an_annotation_that_was_changed_by_hand() -> None:
    made = elastic(2)
    made["metadata"]["annotations"]["tf-launcher.dev/elastic"] = "8"
    assert fold([made], []).roles[0].elastic is None


def test_a_run_that_was_scaled_says_so() -> None:
    before, after = (fold([job("chief", primary=True), elastic(count)], []) for count in (3, 5))
    assert [(news.who, news.text) for news in sentences.endings(before, after)] == [
        ("run", "is to have 5 workers, 3 before")
    ]


def test_an_image_that_is_not_there_is_shown() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    status = fold([job("chief", primary=True, active=1)], [pod("chief", 0, "Pending", state=waiting)])
    assert status.phase is Phase.PENDING
    assert (status.tasks[0].reason, status.tasks[0].message) == ("ErrImagePull", "not found")


def test_the_primary_comes_first_and_its_phase_is_the_runs() -> None:
    jobs = [
        job("worker", 2, active=2, ready=2),
        job("chief", primary=True, succeeded=1, conditions=condition("Complete", "CompletionsReached")),
    ]
    status = fold(
        jobs, [pod("worker", 0, "Running"), pod("worker", 1, "Running"), pod("chief", 0, "Succeeded")]
    )
    assert [role.role for role in status.roles] == ["chief", "worker"]
    assert status.phase is Phase.SUCCEEDED
    assert not status.ended, "the workers still run"
    assert status.finished == seconds("2026-01-02T03:05:05Z")


def test_the_latest_pod_is_the_task_and_the_others_are_restarts() -> None:
    pods = [
        pod("worker", 1, "Failed", EARLY, code=137),
        pod("worker", 1, "Running", LATER),
        pod("worker", 0, "Failed", EARLY, code=143, deletionTimestamp=LATE),
        pod("worker", 0, "Running", LATER),
        pod("other", 0, "Running"),
    ]
    status = fold([job("worker", 2, primary=True, active=2, failed=1)], pods)
    assert [(task.name, task.phase, task.restarts) for task in status.tasks] == [
        ("demo-worker-0", Phase.RUNNING, 0),
        ("demo-worker-1", Phase.RUNNING, 1),
    ]
    assert status.roles[0].restarts == 1


def test_a_failed_run_and_who_failed() -> None:
    failed = condition("Failed", "PodFailurePolicy", "Container tensorflow ... exit code 70")
    jobs = [
        job("chief", primary=True, failed=1, conditions=failed),
        job("worker", 2, failed=1, conditions=condition("Failed", "RunFailed")),
    ]
    pods = [
        pod("chief", 0, "Failed", code=70),
        pod("worker", 0, "Failed", code=1),
        pod("worker", 1, "Failed", code=143, deletionTimestamp=LATE),
    ]
    status = fold(jobs, pods)
    assert (status.phase, status.reason, status.ended) == (Phase.FAILED, "PodFailurePolicy", True)
    assert [task.name for task in status.failures] == ["demo-chief-0", "demo-worker-0"]


@pytest.mark.parametrize("status", [{"conditions": condition("Suspended")}, {"suspend": True}])
def test_suspended(status: dict[str, Any]) -> None:
    run_status = fold([job("chief", primary=True, **status)], [])
    assert (run_status.phase, run_status.ended) == (Phase.SUSPENDED, False)


def test_a_false_condition_is_none() -> None:
    (resumed,) = condition("Suspended")
    status = fold([job("chief", primary=True, conditions=[{**resumed, "status": "False"}])], [])
    assert status.phase is Phase.PENDING


def test_lost() -> None:
    status = fold([job("chief", primary=True, active=1)], [pod("chief", 0, "Running")], lost=True)
    assert (status.phase, status.ended) == (Phase.LOST, True)
    done = job("chief", primary=True, conditions=condition("Complete"))
    status = fold([done, job("ps", active=1)], [], lost=True)
    assert (status.phase, status.ended) == (Phase.SUCCEEDED, True)


def test_times_of_both_precisions() -> None:
    assert seconds("1970-01-01T00:00:01Z") == 1.0
    assert seconds("1970-01-01T00:00:01.250000Z") == 1.25
    assert seconds(None) is None


def test_the_newest_record_of_an_event() -> None:
    old, new = (Record("exported", f"demo-worker-{n}", float(n), {"path": f"/{n}"}) for n in (1, 2))
    assert latest({"a": {"exported": new}, "b": {"exported": old}}, Exported) == Exported("/2")
    assert latest({}, Exported) is None
    left = Record("released", "a", 1.0, {"outcome": "done"})
    assert latest({"a": {"released": left}}, Released) is None, "it was released, and has released nobody"


def at(phase: str, **more: Any) -> RunStatus:
    running = job("chief", primary=True, active=1)
    workers = job("worker", 2, active=2)
    return fold([running, workers], [pod("chief", 0, "Running"), pod("worker", 1, phase, **more)])


def test_what_is_new() -> None:
    narrator = sentences.Narrator()
    record = Record("exported", "demo-chief-0", 2e9, {"path": "/x"})
    line = LogLine("chief", 0, 0, record.line(), record)

    def news(status: RunStatus, *lines: LogLine) -> list[str]:
        return [f"{one.who}: {one.text}" for one in narrator.news(status, lines)]

    first = at("Running")
    assert news(first, line) == [
        "chief: 1 task started",
        "worker: 1 of 2 tasks started",
        "chief: exported the model to /x",
    ]
    assert news(first) == []
    assert news(at("Failed", code=137)) == ["worker 1: ended with exit code 137 (SIGKILL)"]
    again = fold(
        [job("chief", primary=True, active=1), job("worker", 2, active=2)],
        [
            pod("chief", 0, "Running"),
            pod("worker", 1, "Failed", code=137),
            pod("worker", 1, "Running", LATER),
        ],
    )
    assert news(again) == ["worker 1: started again (restart 1)"]
    ended = fold(
        [
            job("chief", primary=True, conditions=condition("Failed", "DeadlineExceeded", "too long")),
            job("worker", 2, conditions=condition("Complete")),
        ],
        [],
    )
    assert news(ended) == ["chief: failed: too long", "worker: complete"]


@pytest.mark.parametrize(
    ("event", "fields", "text"),
    [
        (
            "waiting",
            {"tasks": [f"demo-worker-{n}" for n in range(5)], "seconds": 12.4, "deadline": 900},
            "waits for demo-worker-0, demo-worker-1, demo-worker-2 and 2 more (12 s of at most 900 s)",
        ),
        (
            "training",
            {"epochs": 3, "steps_per_epoch": None, "initial_epoch": 1},
            "trains 3 epochs; 1 done before",
        ),
        (
            "progress",
            {
                "epoch": 2,
                "epochs": 3,
                "step": 5,
                "steps": None,
                "steps_per_second": 412.3,
                "loss": None,
                "metrics": {},
                "epoch_end": False,
            },
            "epoch 2/3, step 5: 412 steps/s",
        ),
        (
            "evaluation",
            {"checkpoint": "ckpt-3", "epoch": None, "metrics": {"loss": "nan", "f1": 1e-9}},
            "evaluation ckpt-3: f1 1.000e-09, loss nan",
        ),
        (
            "released",
            {"tasks": ["a", "b"], "unreachable": ["demo-ps-0"]},
            "shut down 2 tasks; could not reach demo-ps-0",
        ),
        ("failed", {"message": "no", "traceback": "", "exit_code": 70}, "failed: no"),
        ("of a later version", {"x": 1}, ""),
    ],
)
def test_records_in_words(event: str, fields: dict[str, Any], text: str) -> None:
    assert presentation.describe(Record(event, "demo-chief-0", 0.0, fields)) == text


def test_progress_is_not_said_too_often() -> None:
    narrator = sentences.Narrator()
    status = at("Running")
    reported_steps = []
    for step in range(1, 101):
        fields = {
            "epoch": 1,
            "epochs": 1,
            "step": step,
            "steps": 100,
            "steps_per_second": 10.0,
            "loss": 1.0,
            "metrics": {},
            "epoch_end": step == 100,
        }
        record = Record("progress", "demo-chief-0", step / 10, fields)
        news = narrator.news(status, [LogLine("chief", 0, 0, record.line(), record)])
        reported_steps += [step for one in news if "step" in one.text]
    assert reported_steps == [1, 51, 100]


def test_attempts_are_all_of_a_tasks_pods_with_their_times() -> None:
    over = {"terminated": {"exitCode": 137, "startedAt": LATE, "finishedAt": LATER}}
    pods = [
        pod("worker", 0, "Running", LATER, state={"running": {"startedAt": LATER}}),
        pod("worker", 0, "Failed", EARLY, state=over),
        pod("chief", 0, "Pending", EARLY),
        pod("another", 0, "Running"),
    ]
    del pods[2]["status"]["startTime"]
    task_attempts = attempts([job("chief", primary=True), job("worker")], pods)
    assert [(a.name, a.created, a.started, a.running, a.finished) for a in task_attempts] == [
        ("demo-chief-0", seconds(EARLY), None, None, None),
        ("demo-worker-0", seconds(EARLY), seconds(EARLY), seconds(LATE), seconds(LATER)),
        ("demo-worker-0", seconds(LATER), seconds(LATER), seconds(LATER), None),
    ]
    assert [a.exit_code for a in task_attempts] == [None, 137, None]
