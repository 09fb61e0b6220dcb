"""The policy that stops tasks at a run's end, without any run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.backends.run_end_rule import (
    EVALUATOR_SECONDS,
    FAILED_SECONDS,
    OTHER_IMAGE_SECONDS,
    PEERS_SECONDS,
    Decision,
    Limits,
    Role,
    decide,
)
from launcher.status import Phase
from tests.paths import ROOT
from tests.run_end_cases import Case, each_case

RUN = "demo"
CHIEF = Role("chief", f"{RUN}-chief", Phase.RUNNING)


def ended(role: Role, phase: Phase, at: float) -> Role:
    return replace(role, phase=phase, ended_at=at, idle=False)


class Play:
    """A case with a simulated clock: time passes only while the policy waits."""

    def __init__(self, case: Case, clean_policy: str) -> None:
        self.now = 0.0
        self.words: dict[str, str] = {}
        self.left: tuple[str, ...] = ()
        self._case = case
        self._clean_policy = clean_policy
        self._roles = {"chief": CHIEF}
        for name, other in case.others.items():
            role = Role(
                name,
                f"{RUN}-{name}",
                Phase.RUNNING,
                leaves=other.leaves,
                needed=other.needed,
                idle=other.does == "waits",
            )
            if other.does == "fails":
                failure = f"{RUN}-{name}-0 ended with exit code 3"
                role = ended(replace(role, last_failure=failure), Phase.FAILED, 0.0)
            self._roles[name] = role

    def decide(self) -> Decision:
        chief, *others = self._roles.values()
        return decide(chief, others, self._clean_policy, self.now, self._case.limits)

    def to_the_end(self) -> None:
        while not self.left and any(role.ended_at is None for role in self._roles.values()):
            decision = self.decide()
            for stop in decision.stops:
                for name in stop.jobs:
                    role = name.removeprefix(f"{RUN}-")
                    self.words[role] = f"{stop.reason}: {stop.message}"
                    self._end(role, Phase.FAILED)
            self.left = tuple(job.removeprefix(f"{RUN}-") for job in decision.left)
            if not decision.stops and not self._act():
                assert self.left or decision.due is not None, "nothing would ever happen again"
                self.now = decision.due or self.now

    def _act(self) -> bool:
        """Has the tasks do what they do by themselves at this time."""
        failed = any(other.does == "fails" for other in self._case.others.values())
        if self._case.primary != "stays" and self._roles["chief"].ended_at is None:
            self.now += self._case.pause if failed else 0.0
            assert not self.decide().stops
            succeeds = self._case.primary == "succeeds"
            self._end("chief", Phase.SUCCEEDED if succeeds else Phase.FAILED)
            return True
        leaving = [
            name
            for name, other in self._case.others.items()
            if other.does == "ends" and self._roles[other.after].ended_at is not None
        ]
        still = [name for name in leaving if self._roles[name].ended_at is None]
        for name in still:
            self._end(name, Phase.SUCCEEDED)
        return bool(still)

    def _end(self, role: str, phase: Phase) -> None:
        self._roles[role] = ended(self._roles[role], phase, self.now)


@each_case
def test_where_nothing_may_go_on(case: Case) -> None:
    play = Play(case, "Running")
    play.to_the_end()
    assert (play.words, play.left) == (case.words(RUN, may_go_on=False), ())
    assert play.now < 10, "nothing waits for a limit that holds for nobody"


@each_case
def test_where_it_may(case: Case) -> None:
    play = Play(case, case.clean_policy)
    play.to_the_end()
    assert (play.words, play.left) == (case.words(RUN, may_go_on=True), case.left)


def test_the_documents_say_how_long() -> None:
    text = (ROOT / "docs" / "lifecycle.md").read_text()
    rows = {row.split(" | ")[0]: row for row in text.splitlines() if row.startswith("| ")}
    failed = f"{FAILED_SECONDS:g} s |"
    runtime = "| workers and parameter servers of the worker runtime, which the chief releases"
    evaluator = "| its evaluator, which scores the last checkpoint"
    strangers = "| tasks of any other image, which nobody tells that the run has ended"
    assert rows[runtime] == f"{runtime} | {PEERS_SECONDS:g} s | {failed}"
    assert rows[evaluator] == f"{evaluator} | {EVALUATOR_SECONDS / 60:g} minutes | {failed}"
    assert rows[strangers] == f"{strangers} | {OTHER_IMAGE_SECONDS:g} s | {failed}"


WORKER = Role("worker", "demo-worker", Phase.RUNNING)


@pytest.mark.parametrize(
    ("phase", "role", "seconds"),
    [
        (Phase.SUCCEEDED, WORKER, PEERS_SECONDS),
        (Phase.SUCCEEDED, replace(WORKER, role="ps"), PEERS_SECONDS),
        (Phase.SUCCEEDED, replace(WORKER, role="evaluator"), EVALUATOR_SECONDS),
        (Phase.SUCCEEDED, replace(WORKER, role="evaluator", idle=True), EVALUATOR_SECONDS),
        (Phase.SUCCEEDED, replace(WORKER, leaves=False), OTHER_IMAGE_SECONDS),
        (Phase.FAILED, WORKER, FAILED_SECONDS),
        (Phase.FAILED, replace(WORKER, leaves=False), FAILED_SECONDS),
        (Phase.FAILED, replace(WORKER, role="evaluator"), FAILED_SECONDS),
    ],
)
def test_nobody_is_stopped_before_its_time(phase: Phase, role: Role, seconds: float) -> None:
    chief = ended(CHIEF, phase, 100.0)
    before = decide(chief, [role], "Running", 99.9 + seconds)
    assert (before.stops, before.due) == ((), 100.0 + seconds)
    then = decide(chief, [role], "Running", 100.0 + seconds)
    assert ([stop.jobs for stop in then.stops], then.due) == ([("demo-worker",)], None)
    assert f"demo-worker did not end within {seconds:g} s of demo-chief" in then.stops[0].notice


def test_a_primary_is_stopped_some_time_after_what_it_needs_has_failed() -> None:
    failed = ended(WORKER, Phase.FAILED, 50.0)
    assert decide(CHIEF, [failed], "Running", 50.0) == Decision(due=50.0 + FAILED_SECONDS)
    (stop,) = decide(CHIEF, [failed], "Running", 50.0 + FAILED_SECONDS).stops
    assert stop.notice == (
        "demo-worker has failed, and the run cannot go on without it; demo-chief is stopped"
    )


@pytest.mark.parametrize(
    ("chief", "worker"),
    [
        (CHIEF, WORKER),
        (replace(CHIEF, phase=Phase.SUSPENDED), ended(WORKER, Phase.FAILED, 0.0)),
        (replace(CHIEF, stopped=True), ended(WORKER, Phase.FAILED, 0.0)),
        (CHIEF, replace(ended(WORKER, Phase.FAILED, 0.0), served=True)),
        (CHIEF, ended(WORKER, Phase.SUCCEEDED, 0.0)),
        (ended(CHIEF, Phase.SUCCEEDED, 0.0), ended(WORKER, Phase.FAILED, 0.0)),
        (ended(CHIEF, Phase.SUCCEEDED, 0.0), replace(WORKER, stopped=True)),
    ],
    ids=[
        "goes on",
        "suspended",
        "stopped already",
        "one has served",
        "has succeeded",
        "over",
        "being stopped",
    ],
)
def test_nothing_is_done_without_need(chief: Role, worker: Role) -> None:
    assert decide(chief, [worker], "Running", 1000.0) == Decision()


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_only_the_evaluator_is_tried_again_after_the_end(phase: Phase) -> None:
    others = [WORKER, replace(WORKER, role="evaluator", job="demo-evaluator")]
    assert decide(ended(CHIEF, phase, 0.0), others, "Running", 1.0).without_retry == ("demo-worker",)
    assert decide(CHIEF, others, "Running", 1.0).without_retry == ()


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_what_is_suspended_gets_no_time(role: str) -> None:
    suspended = replace(WORKER, role=role, phase=Phase.SUSPENDED)
    (stop,) = decide(ended(CHIEF, Phase.SUCCEEDED, 5.0), [suspended], "Running", 5.0).stops
    assert stop.message == "Stopped: none of its tasks ran, and demo-chief had succeeded"
    assert stop.notice == "nothing of demo-worker ran when demo-chief had ended: stopped"


def test_with_clean_policy_none_what_has_time_is_waited_for() -> None:
    chief = ended(CHIEF, Phase.SUCCEEDED, 0.0)
    others = [replace(WORKER, leaves=False), replace(WORKER, role="evaluator", job="demo-evaluator")]
    assert decide(chief, others, "None", OTHER_IMAGE_SECONDS) == Decision(due=EVALUATOR_SECONDS)
    late = decide(chief, others, "None", EVALUATOR_SECONDS)
    assert late == Decision(left=("demo-worker", "demo-evaluator"))


SHORT_OF_WORKERS = replace(
    WORKER, least=2, left=1, short_since=5.0, last_failure="demo-worker-2 ended with exit code 1"
)


def test_fewer_elastic_workers_than_needed_end_the_run() -> None:
    decision = decide(CHIEF, [SHORT_OF_WORKERS], "Running", 6.0)
    assert decision == Decision(due=5.0 + FAILED_SECONDS), "the chief may have its own words"
    (stop,) = decide(CHIEF, [SHORT_OF_WORKERS], "Running", 5.0 + FAILED_SECONDS).stops
    assert stop.jobs == ("demo-chief",)
    assert stop.message == (
        "Stopped, since 1 task is left of demo-worker, the others have failed for good "
        "(demo-worker-2 ended with exit code 1), and the run needs 2"
    )


def test_as_many_elastic_workers_as_needed_do() -> None:
    enough = replace(SHORT_OF_WORKERS, left=2)
    assert decide(CHIEF, [enough], "Running", 1000.0) == Decision()


@pytest.mark.parametrize("role", ["chief", "ps"])
def test_what_cannot_start_unless_somebody_mends_it_ends_the_run(role: str) -> None:
    stuck = Role(role, f"{RUN}-{role}", Phase.PENDING, stuck="no such image", stuck_since=10.0)
    primary, others = (stuck, []) if role == "chief" else (CHIEF, [stuck])
    limits = Limits(stuck_seconds=30.0)
    assert decide(primary, others, "Running", 39.0, limits) == Decision(due=40.0)
    (stop,) = decide(primary, others, "Running", 40.0, limits).stops
    assert stop.jobs == (f"{RUN}-chief",)
    assert stop.why == (f"{RUN}-{role} could not start for 30 s (startingDeadlineSeconds): no such image")


def test_what_nobody_can_mend_ends_the_run_soon() -> None:
    stuck = replace(CHIEF, stuck="no python3", stuck_since=10.0, stuck_for_good=True)
    assert decide(stuck, [], "Running", 19.0) == Decision(due=20.0)
    (stop,) = decide(stuck, [], "Running", 20.0).stops
    assert stop.why == f"{RUN}-chief can never start: no python3"


def test_an_evaluator_that_cannot_start_is_no_reason_to_end_the_run() -> None:
    stuck = Role("evaluator", f"{RUN}-evaluator", Phase.PENDING, stuck="no such image", stuck_since=10.0)
    assert decide(CHIEF, [stuck], "Running", 1e6) == Decision()
