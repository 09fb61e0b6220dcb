"""Pods' times and tasks' records as a timeline: activities, restarts, and sums of time."""

from __future__ import annotations

import dataclasses

from launcher.backends.base import History
from launcher.report.amounts import duration
from launcher.report.events import report_events
from launcher.report.processes import by_process
from launcher.report.restarts import restarts
from launcher.report.time_breakdown import TimeBreakdown, break_down
from launcher.report.timeline import TaskTimeline, task_timelines
from launcher.status import Phase, TaskStatus
from launcher.task_records.presentation import State
from tests.unit.histories import BEGIN, event, history, pod, says, step


def segments(task: TaskTimeline) -> list[tuple[str, float, float]]:
    """Returns state, begin and end of each segment, in seconds since the run's begin."""
    return [(s.state.value, round(s.start - BEGIN, 1), round(s.end - BEGIN, 1)) for s in task.segments]


def where(of: History) -> TimeBreakdown:
    timelines = task_timelines(of)
    return break_down(of, timelines, restarts(timelines))


def told(of: History) -> list[str]:
    return [f"{duration(share.seconds)} {share.text}" for share in where(of).visible]


def test_a_process_that_was_started_again_in_its_pod_costs_what_a_pod_would() -> None:
    """The worker is killed, the chief loses it, and both start again without a new pod."""
    chief = pod("chief", finished=200, exit_code=0)
    worker = pod("worker", finished=200, exit_code=0)
    lines = [
        says("chief", 0, 0, 10, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        step(50, 4, 10),
        says("worker", 0, 0, 99, "failed", message="killed", traceback="", exit_code=137),
        says("worker", 0, 0, 99.5, "restarted", exit_code=137, restart=1),
        says("chief", 0, 0, 100, "failed", message="a task was lost", traceback="", exit_code=75),
        says("chief", 0, 0, 100.5, "restarted", exit_code=75, restart=1),
        says("chief", 0, 0, 110, "training", epochs=8, steps_per_epoch=10, initial_epoch=3),
        step(120, 4, 10),
        step(190, 8, 10),
    ]
    of = by_process(history([chief, worker], lines, finished=200))
    tasks = task_timelines(of)
    assert segments(tasks[0]) == [
        ("starting", 0, 10),
        ("training", 10, 100),
        ("down", 100, 100.5),
        ("starting", 100.5, 110),
        ("training", 110, 190),
        ("finishing", 190, 200),
    ]
    assert [(mark.kind, mark.text) for mark in tasks[0].marks] == [
        ("failed", "lost another task, or stalled")
    ]
    first, second = restarts(tasks)
    assert (first.name, first.why, first.in_place) == ("worker", "killed", True)
    assert (second.name, second.why, second.in_place) == ("worker", "killed", True)
    assert first.failed == BEGIN + 100
    assert "10 s lost to 1 restart of worker (killed)" in told(of)
    assert [event.text for event in report_events(of, tasks, [first])].count(
        "started again in its pod (killed)"
    )


def test_pods_keep_their_order_beside_processes() -> None:
    """A pod with two processes, and the pod that took its place."""
    pods = [pod("chief", finished=50, exit_code=75), pod("chief", attempt=1, created=60)]
    lines = [
        says("chief", 0, 0, 20, "restarted", exit_code=137, restart=1),
        says("chief", 0, 0, 30, "ready"),
        says("chief", 0, 1, 70, "ready"),
    ]
    of = by_process(history(pods, lines, seen=80))
    attempts = [(each.attempt, each.in_place, each.exit_code, each.finished) for each in of.attempts]
    assert attempts == [(0, False, 137, BEGIN), (1, True, 75, BEGIN + 50), (2, False, None, None)]
    assert [line.attempt for line in of.lines] == [1, 1, 2]
    assert [restart.in_place for restart in restarts(task_timelines(of))] == [True, False]


CHIEF = [
    says("chief", 0, 0, 43, "waiting", tasks=["mnist-worker-0", "mnist-ps-0"], seconds=0.0, deadline=900),
    says("chief", 0, 0, 45, "waiting", tasks=["mnist-ps-0"], seconds=2.0, deadline=900),
    says("chief", 0, 0, 55, "waiting", tasks=[], seconds=12.0, deadline=900),
    says("chief", 0, 0, 55, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
    step(120, 4, 10),
]


def test_a_task_from_its_pod_to_its_release() -> None:
    chief = pod("chief", created=1, started=5, running=36, finished=250, exit_code=0)
    ends = [step(240, 8, 10), says("chief", 0, 0, 249, "released", tasks=["mnist-ps-0"], unreachable=[])]
    pulled = event(35, "chief 0", "Pulled", "Successfully pulled image in 30s")
    (task,) = task_timelines(history([chief], [*CHIEF, *ends], [pulled], finished=250))
    assert segments(task) == [
        ("held", 0, 1),
        ("pending", 1, 5),
        ("pulling", 5, 35),
        ("preparing", 35, 36),
        ("starting", 36, 43),
        ("waiting", 43, 45),
        ("waiting", 45, 55),
        ("training", 55, 240),
        ("finishing", 240, 250),
    ]
    assert [segment.note for segment in task.segments if segment.state is State.WAITING] == [
        "mnist-worker-0, mnist-ps-0",
        "mnist-ps-0",
    ]
    assert task.released == BEGIN + 249


def test_an_image_that_was_there_was_not_pulled() -> None:
    chief = pod("chief", started=2, running=9, finished=20, exit_code=0)
    there = event(3, "chief 0", "Pulled", 'Container image "x" already present on machine')
    (task,) = task_timelines(history([chief], [], [there], finished=20))
    assert segments(task) == [("pending", 0, 2), ("preparing", 2, 9), ("running", 9, 20)]


def test_an_image_that_cannot_be_pulled() -> None:
    stuck = dataclasses.replace(
        pod("chief", started=2),
        phase=Phase.PENDING,
        running=None,
        reason="ImagePullBackOff",
        message="no such image",
    )
    (task,) = task_timelines(history([stuck], seen=60))
    assert segments(task) == [("pending", 0, 2), ("pulling", 2, 60)]
    assert task.segments[-1].note == "no such image"


def test_no_node_takes_it() -> None:
    waiting = TaskStatus(
        name="mnist-chief-0",
        role="chief",
        index=0,
        phase=Phase.PENDING,
        reason="Unschedulable",
        message="0/3 nodes are available",
        created=BEGIN + 1,
    )
    of = history([waiting], seen=61)
    (task,) = task_timelines(of)
    assert segments(task) == [("held", 0, 1), ("pending", 1, 61)]
    assert task.segments[1].note == "0/3 nodes are available"
    assert told(of) == ["1.0 s before its first pod was made", "1 min waiting for a node"]


def test_who_says_nothing_works_along_with_the_primary() -> None:
    chief = pod("chief", finished=30, exit_code=0)
    worker = pod("worker", finished=30, exit_code=0)
    ps = pod("ps", finished=30, exit_code=0)
    lines = [
        says("chief", 0, 0, 10, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        step(28, 8, 10),
        says("worker", 0, 0, 7, "ready"),
        says("worker", 0, 0, 29, "released", outcome="done"),
    ]
    of = history([chief, worker, ps], lines, finished=30)
    _, first, second = task_timelines(of)
    assert segments(first) == [
        ("starting", 0, 7),
        ("ready", 7, 10),
        ("training", 10, 28),
        ("ready", 28, 29),
        ("finishing", 29, 30),
    ]
    # A worker of an earlier version has no record that it is ready.
    assert segments(second) == [("starting", 0, 10), ("training", 10, 28), ("ready", 28, 30)]


def test_an_evaluator_scores() -> None:
    chief, evaluator = pod("chief", finished=30, exit_code=0), pod("evaluator", finished=32, exit_code=0)
    scored = says("evaluator", 0, 0, 20, "evaluation", checkpoint="ckpt-1", epoch=1, metrics={"loss": 0.5})
    lines = [*CHIEF[3:], says("evaluator", 0, 0, 8, "ready"), scored, says("evaluator", 0, 0, 31, "done")]
    _, task = task_timelines(history([chief, evaluator], lines, finished=30))
    assert segments(task) == [("starting", 0, 8), ("scoring", 8, 31), ("finishing", 31, 32)]
    assert [(mark.kind, mark.text) for mark in task.marks] == [
        ("scored", "evaluation after epoch 1: loss 0.5000")
    ]


def interrupted() -> History:
    """Worker 1 is killed after 200 s, and all tasks of the collective restart."""
    attempts = [
        pod("worker", 0, 0, started=0, running=31, finished=201, exit_code=75),
        pod("worker", 0, 1, created=205, finished=252, exit_code=0),
        pod("worker", 1, 0, started=0, running=31, finished=200, exit_code=137),
        pod("worker", 1, 1, created=203, finished=252, exit_code=0),
        pod("worker", 2, 0, started=0, running=31, finished=201.5, exit_code=75),
        pod("worker", 2, 1, created=206, finished=252, exit_code=0),
    ]
    lines = [
        says("worker", 0, 0, 31, "waiting", tasks=["mnist-worker-2"], seconds=0.0, deadline=900),
        says("worker", 0, 0, 43, "waiting", tasks=[], seconds=12.0, deadline=900),
        says("worker", 0, 0, 43, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        step(190, 5, 10, role="worker"),
        step(196, 6, 5, role="worker"),
        step(200, 6, 8, role="worker"),
        says("worker", 0, 0, 200.5, "failed", message="worker 1 is lost", traceback="", exit_code=75),
        says("worker", 0, 1, 215, "training", epochs=8, steps_per_epoch=10, initial_epoch=5),
        step(219, 6, 5, role="worker", attempt=1),
        step(252, 8, 10, role="worker", attempt=1),
    ]
    pulls = [event(30, f"worker {index}", "Pulled", "Successfully pulled image") for index in range(3)]
    pulls += [event(31, "worker 0", "Pulled", "Successfully pulled image")]
    return history(attempts, lines, pulls, finished=252)


def test_where_the_time_went() -> None:
    # Down for 14.5 s, from the failure to the training; 1 s, from 6.5 on, was trained twice.
    assert told(interrupted()) == [
        "31 s pulling images",
        "12 s waiting for worker 2",
        "3 min 14 s training",
        "16 s lost to 1 restart of worker 1 (killed)",
    ]
    assert where(interrupted()).remarks == ()
    shares = where(interrupted()).shares
    assert round(sum(share.seconds for share in shares), 6) == where(interrupted()).total == 252


def test_a_restart_beside_which_the_training_goes_on() -> None:
    attempts = [
        pod("chief", finished=100, exit_code=0),
        pod("worker", 0, 0, finished=40, exit_code=137, reason="OOMKilled"),
        pod("worker", 0, 1, created=41, finished=100, exit_code=0),
    ]
    lines = [
        says("chief", 0, 0, 10, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        step(100, 8, 10),
        says("worker", 0, 0, 9, "ready"),
        says("worker", 0, 1, 48, "ready"),
    ]
    of = history(attempts, lines, finished=100)
    assert told(of) == ["10 s starting the program", "1 min 30 s training"]
    assert where(of).remarks == (
        "Besides, worker ended after 40 s (out of memory) and was back 8.0 s later, while the chief went on.",
    )


def test_the_primary_itself_is_killed_twice() -> None:
    attempts = [
        pod("chief", 0, 0, finished=40, exit_code=137),
        pod("chief", 0, 1, created=42, finished=60, exit_code=137),
        pod("chief", 0, 2, created=64, finished=100, exit_code=0),
    ]
    lines = [
        says("chief", 0, number, start, "training", epochs=8, steps_per_epoch=10, initial_epoch=0)
        for number, start in enumerate((10, 50, 70))
    ]
    of = history(attempts, [*lines, step(100, 8, 10, attempt=2)], finished=100)
    assert told(of)[-1] == "20 s lost to 2 restarts of chief (killed)"
    assert "1 min 10 s training" in told(of)


def test_what_is_trained_twice_is_lost_also_when_the_next_pod_did_not_come_to_train() -> None:
    attempts = [
        pod("chief", 0, 0, finished=40, exit_code=137),
        pod("chief", 0, 1, created=40, finished=50, exit_code=137),
        pod("chief", 0, 2, created=50, finished=100, exit_code=0),
    ]
    lines = [
        says("chief", 0, 0, 10, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        step(20, 1, 10),
        step(30, 2, 5),
        step(39, 2, 9),
        says("chief", 0, 2, 60, "training", epochs=8, steps_per_epoch=10, initial_epoch=1),
        step(61, 2, 1, attempt=2),
        step(100, 8, 10, attempt=2),
    ]
    # 20 s between the pods, and 10 s of the second epoch.
    assert told(history(attempts, lines, finished=100)) == [
        "10 s starting the program",
        "1 min training",
        "30 s lost to 2 restarts of chief (killed)",
    ]


def test_a_suspension_is_no_failure() -> None:
    attempts = [
        pod("chief", 0, 0, finished=40, exit_code=143, deleted=True),
        pod("chief", 0, 1, created=90, finished=120, exit_code=0),
    ]
    lines = [
        says("chief", 0, 0, 10, "training", epochs=8, steps_per_epoch=10, initial_epoch=0),
        says("chief", 0, 1, 95, "training", epochs=8, steps_per_epoch=10, initial_epoch=3),
        step(120, 8, 10, attempt=1),
    ]
    of = history(attempts, lines, finished=120)
    (task,) = task_timelines(of)
    assert ("stopped", 40, 90) in segments(task)
    assert not task.marks
    assert told(of)[-1] == "55 s suspended or moved (1 time)"


def test_who_is_to_come_again() -> None:
    attempts = [pod("chief", finished=40, exit_code=75), pod("worker", finished=39, exit_code=137)]
    of = history(attempts, CHIEF[3:4], seen=60)
    chief, worker = task_timelines(of)
    assert segments(chief)[-1] == ("down", 40, 60)
    assert segments(worker)[-1] == ("down", 39, 60)
    assert told(of)[-1] == "20 s lost to 1 restart of worker (killed)"
    stopped = pod("chief", finished=40, exit_code=143, deleted=True)
    assert told(history([stopped], CHIEF[3:4], seen=60))[-1] == "20 s suspended or moved (1 time)"
    failed = history(attempts[1:], phase=Phase.FAILED, finished=45)
    assert segments(task_timelines(failed)[0])[-1] == ("running", 0, 39), (
        "the run has ended: nobody comes again"
    )


def test_who_was_stopped_before_it_said_anything_was_only_starting() -> None:
    attempts = [
        pod("chief", finished=60, exit_code=143, deleted=True),
        pod("chief", 0, 1, created=70, finished=75, exit_code=143, deleted=True),
        pod("chief", 0, 2, created=80),
    ]
    (task,) = task_timelines(history(attempts, CHIEF[3:4], seen=90))
    assert ("starting", 70, 75) in segments(task)


def test_a_run_that_goes_on() -> None:
    of = history([pod("chief")], CHIEF, seen=130)
    (task,) = task_timelines(of)
    assert segments(task)[-1] == ("training", 55, 130)
    assert told(of)[-1] == "1 min 15 s training"


def test_a_lost_run_ends_with_the_last_that_was_heard_of_it() -> None:
    of = history([pod("chief")], CHIEF, phase=Phase.LOST, ended=True, seen=5000)
    (task,) = task_timelines(of)
    assert segments(task)[-1] == ("training", 55, 120)


def test_a_run_without_a_pod() -> None:
    of = history([], seen=90)
    assert task_timelines(of) == []
    assert told(of) == ["1 min 30 s before its first pod was made"]


def test_durations() -> None:
    assert [duration(value) for value in (0, 0.04, 9.94)] == ["0.0 s", "0.0 s", "9.9 s"]
    assert [duration(value) for value in (9.95, 59.4, 59.6)] == ["10 s", "59 s", "1 min"]
    assert [duration(value) for value in (252, 3599.6, 7500)] == ["4 min 12 s", "1 h 00 min", "2 h 05 min"]
    assert duration(2 * 86400 + 7200) == "2 d 2 h"


def test_a_pod_that_is_gone_was_there() -> None:
    """Suspending a run deletes its pods, whose events stay."""
    events = [event(2.0, "chief 0", "Scheduled"), event(62.0, "chief 0", "Scheduled")]
    of = history([pod("chief", created=61.0)], events=events, seen=90.0)
    assert segments(task_timelines(of)[0])[:2] == [("held", 0, 2), ("stopped", 2, 61)]
    assert "59 s suspended, or in pods that are gone" in told(of)
