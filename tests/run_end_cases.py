"""How runs end, as one table. It tests the pure policy, the supervisor of this machine, and the follower of a
run on Kubernetes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal, Protocol

import pytest

from launcher.backends.run_end_rule import Limits
from launcher.status import Phase, RunStatus

SHORT = Limits(peers_seconds=0.5, evaluator_seconds=0.8, other_image_seconds=0.3, failed_seconds=0.4)
"""All limits differ, so that a message shows which of them applied."""

LONG = 600.0
"""Seconds that no test waits for. It is the limit of tasks that end by themselves, because a Job's controller
takes a second to notice their end.
"""

RELEASED = "RunEnded: Stopped: still running {peers_seconds:g} s after {run}-chief had succeeded"
SCORING = "RunEnded: Stopped: still running {evaluator_seconds:g} s after {run}-chief had succeeded"
STRANGER = "RunEnded: Stopped: still running {other_image_seconds:g} s after {run}-chief had succeeded"
USELESS = "RunEnded: Stopped: none of its tasks ran, and {run}-chief had succeeded"
FAILED = "RunFailed: Stopped, since {run}-chief has failed"
MISSED = (
    "RunFailed: Stopped, since {run}-%s has failed ({run}-%s-0 ended with exit code 3), "
    "and the run cannot go on without it"
)


@dataclass(frozen=True)
class Other:
    """A role of one task beside the primary. It runs until it is stopped; or it fails for good before the
    primary ends; or it waits, for a node or its next try, in any case; or it ends with 0 once the role
    `after` has ended.
    """

    does: Literal["stays", "fails", "waits", "ends"] = "stays"
    after: str = "chief"
    leaves: bool = True
    needed: bool | None = None


@dataclass(frozen=True)
class Case:
    """One case. `stopped` has the roles that are stopped and their messages where a run cannot go on with
    what is left, as always on this machine. `left` has those that are not stopped where it may go on, as on
    Kubernetes.
    """

    name: str
    primary: Literal["succeeds", "fails", "stays"]
    others: Mapping[str, Other]
    stopped: Mapping[str, str]
    clean_policy: str = "Running"
    left: tuple[str, ...] = ()
    limits: Limits = SHORT

    def words(self, run: str, *, may_go_on: bool) -> dict[str, str]:
        """Returns the messages of the stopped roles, as `reason: message`."""
        return {
            role: words.format(run=run, **asdict(self.limits))
            for role, words in self.stopped.items()
            if not (may_go_on and role in self.left)
        }

    @property
    def phase(self) -> Phase:
        """Returns the run's phase at its end."""
        return Phase.SUCCEEDED if self.primary == "succeeds" else Phase.FAILED

    @property
    def pause(self) -> float:
        """Seconds from a role's failure to the primary's own end: longer than the limit after a needed role's
        end.
        """
        return 3 * self.limits.failed_seconds


CASES = (
    Case(
        "what was not released is stopped after a minute",
        "succeeds",
        {"worker": Other(), "ps": Other()},
        {"worker": RELEASED, "ps": RELEASED},
    ),
    Case(
        "cleanPolicy All stops the same",
        "succeeds",
        {"worker": Other(), "evaluator": Other("ends")},
        {"worker": RELEASED},
        clean_policy="All",
        limits=replace(SHORT, evaluator_seconds=LONG),
    ),
    Case(
        "who leaves by itself is not stopped",
        "succeeds",
        {"worker": Other("ends"), "ps": Other("ends"), "evaluator": Other("ends")},
        {},
        limits=Limits(LONG, LONG, LONG, LONG),
    ),
    Case(
        "the evaluator has longer than the servers",
        "succeeds",
        {"ps": Other(), "evaluator": Other("ends", after="ps")},
        {"ps": RELEASED},
        limits=replace(SHORT, evaluator_seconds=LONG),
    ),
    Case(
        "the evaluator has not for ever",
        "succeeds",
        {"ps": Other("ends"), "evaluator": Other()},
        {"evaluator": SCORING},
        limits=replace(SHORT, peers_seconds=LONG),
    ),
    Case(
        "an image that knows of no end is stopped soon, whoever else still has time",
        "succeeds",
        {"ps": Other(leaves=False), "evaluator": Other("ends", after="ps")},
        {"ps": STRANGER},
        limits=Limits(LONG, LONG, other_image_seconds=0.3),
    ),
    Case(
        "another image's evaluator is no exception",
        "succeeds",
        {"evaluator": Other(leaves=False)},
        {"evaluator": STRANGER},
    ),
    Case(
        "servers that wait to start are of no use any more",
        "succeeds",
        {"worker": Other("waits")},
        {"worker": USELESS},
        limits=Limits(LONG, LONG, LONG, LONG),
    ),
    Case(
        "a failed primary takes all along",
        "fails",
        {"worker": Other(), "ps": Other(leaves=False), "evaluator": Other()},
        {"worker": FAILED, "ps": FAILED, "evaluator": FAILED},
    ),
    Case(
        "who leaves a failed run by itself is not stopped",
        "fails",
        {"ps": Other("ends"), "evaluator": Other("ends")},
        {},
        limits=Limits(LONG, LONG, LONG, LONG),
    ),
    Case(
        "servers that wait to start are of no use to a failed run",
        "fails",
        {"ps": Other("waits")},
        {"ps": FAILED},
        limits=Limits(LONG, LONG, LONG, LONG),
    ),
    Case(
        "without its parameter servers a run cannot go on",
        "stays",
        {"worker": Other(), "ps": Other("fails"), "evaluator": Other()},
        {"chief": MISSED % ("ps", "ps"), "worker": FAILED, "evaluator": FAILED},
    ),
    Case(
        "without workers a run cannot go on",
        "stays",
        {"worker": Other("fails")},
        {"chief": MISSED % ("worker", "worker")},
    ),
    Case(
        "without its evaluator a run goes on",
        "succeeds",
        {"ps": Other(), "evaluator": Other("fails")},
        {"ps": RELEASED},
    ),
    Case(
        "a Job may say that the run cannot go on without it",
        "stays",
        {"evaluator": Other("fails", needed=True)},
        {"chief": MISSED % ("evaluator", "evaluator")},
    ),
    Case(
        "a Job may say that the run goes on without it",
        "succeeds",
        {"worker": Other("fails", needed=False)},
        {},
    ),
    Case(
        "cleanPolicy None leaves what is left",
        "succeeds",
        {"worker": Other(), "ps": Other(leaves=False), "evaluator": Other("ends")},
        {"worker": RELEASED, "ps": STRANGER},
        clean_policy="None",
        left=("worker", "ps"),
        limits=replace(SHORT, evaluator_seconds=LONG),
    ),
    Case(
        "cleanPolicy None is no reason to wait for ever",
        "stays",
        {"ps": Other("fails"), "evaluator": Other()},
        {"chief": MISSED % ("ps", "ps"), "evaluator": FAILED},
        clean_policy="None",
        left=("evaluator",),
    ),
)

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))


class Stage(Protocol):
    """A real run of a case's roles."""

    def end(self, role: str, exit_code: int) -> None:
        """Has the role's task end by itself."""

    def until(self, condition: Callable[[RunStatus], bool]) -> RunStatus:
        """Waits until this holds, and returns the status."""


def play(case: Case, stage: Stage) -> RunStatus:
    """Returns how the run ends, once all of its tasks run that do not wait."""
    for role, other in case.others.items():
        if other.does == "fails":
            stage.end(role, 3)
            stage.until(lambda status, role=role: _phase(status, role) is Phase.FAILED)  # type: ignore[misc]
    if case.primary != "stays":
        if any(other.does == "fails" for other in case.others.values()):
            over = time.monotonic() + case.pause
            stage.until(lambda _: time.monotonic() > over)
        stage.end("chief", 0 if case.primary == "succeeds" else 3)
    awaited = {role: other.after for role, other in case.others.items() if other.does == "ends"}

    def ended(status: RunStatus) -> bool:
        for role, after in list(awaited.items()):
            if _phase(status, after) in (Phase.SUCCEEDED, Phase.FAILED):
                del awaited[role]
                stage.end(role, 0)
        return status.ended

    return stage.until(ended)


def stopped(status: RunStatus) -> dict[str, str]:
    """Returns the messages of the stopped roles."""
    return {
        role.role: f"{role.reason}: {role.message}"
        for role in status.roles
        if role.reason in ("RunEnded", "RunFailed")
    }


def _phase(status: RunStatus, role: str) -> Phase:
    return next(each.phase for each in status.roles if each.role == role)
