"""What is stopped when a run comes to its end, when, and why: one policy for both backends.

Pure: the caller passes the state of the Jobs and the time (in seconds of any clock that does not go back),
and carries out what `decide` returns. On Kubernetes the caller is the command that follows the run; on this
machine it is the run's supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from launcher.status import RUN_ENDED, RUN_FAILED, Phase
from worker.contract.run_config import ElasticWorkers
from worker.contract.strategies import SERVING
from worker.contract.task_names import EXTRA_WORKER

PEERS_SECONDS: Final = 60.0
"""A worker or ps of the worker runtime leaves within 1 s after the chief released it, and the chief does that
before it ends. One that still runs after a minute was not released: the chief could not reach it, or is a
script that does not call `worker.release`.
"""

EVALUATOR_SECONDS: Final = 600.0
"""The runtime's evaluator ends by itself when it has scored the last checkpoint, which is written shortly
before the chief ends. That takes as long as the evaluation dataset does.
"""

OTHER_IMAGE_SECONDS: Final = 10.0
"""The tasks of another image are not told that the run has ended. Those that end together with the primary
get this time; servers would run for ever.
"""

FAILED_SECONDS: Final = 10.0
"""From a failure until the other tasks are stopped. In this time a task that fails for the same reason can
report it, and one that the failing chief has released can leave.
"""


STUCK_SECONDS: Final = 900.0
"""A pod whose image cannot be pulled may start once somebody has mended what is missing. The run's own
`startingDeadlineSeconds`, whose default this is, says how long that may take.
"""


@dataclass(frozen=True)
class Limits:
    """How long tasks get to end by themselves, or to start, in seconds. The reasons stand at the constants of
    the same names.
    """

    peers_seconds: float = PEERS_SECONDS
    evaluator_seconds: float = EVALUATOR_SECONDS
    other_image_seconds: float = OTHER_IMAGE_SECONDS
    failed_seconds: float = FAILED_SECONDS
    stuck_seconds: float = STUCK_SECONDS


@dataclass(frozen=True)
class Role:
    """One Job of the run, as it is now.

    `phase` is Succeeded or Failed only when its pods are gone, and `ended_at` is when that was first seen.
    `leaves`: its tasks leave by themselves at the run's end. `idle`: none of its tasks runs, and not all have
    succeeded. `served`: at least one has succeeded. `needed`: whether the run fails if the Job fails; None if
    the Job does not say. `stopped`: it was stopped already. `last_failure` is the task that failed last, as
    `mnist-ps-0 ended with exit code 1`, "" where none is known.

    `least` is how many tasks the run needs of elastic workers, 0 of all other roles, and `left` how many have
    not failed for good. `short_since` is when fewer than needed were first seen.

    `stuck` says why its tasks cannot start if nobody mends that; `stuck_since` is when that was first seen,
    None where they can. `stuck_for_good`: nobody can mend it.
    """

    role: str
    job: str
    phase: Phase
    ended_at: float | None = None
    leaves: bool = True
    idle: bool = False
    served: bool = False
    needed: bool | None = None
    stopped: bool = False
    last_failure: str = ""
    least: int = 0
    left: int = 0
    short_since: float | None = None
    stuck: str = ""
    stuck_since: float | None = None
    stuck_for_good: bool = False


class Since:
    """Since when something is so of each Job, as far as was seen; in seconds of the rule's clock."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def see(self, job: str, *, is_so: bool, now: float) -> float | None:
        """When it began to be so; None where it is not so now."""
        if not is_so:
            self._times.pop(job, None)
            return None
        return self._times.setdefault(job, now)


def least(elastic: ElasticWorkers | None) -> int:
    """How many tasks the run needs of elastic workers; 0 of other roles."""
    return elastic.min if elastic is not None else 0


def left(role: str, by_role: Mapping[str, int]) -> int:
    """How many tasks of the role have not failed for good, of those numbers by role: extra workers do the
    work of workers, too.
    """
    return by_role[role] + (by_role.get(EXTRA_WORKER, 0) if role == "worker" else 0)


@dataclass(frozen=True)
class Stop:
    """Make these Jobs fail now, with this reason and message. `notice` is for the user. If the primary is to
    be stopped, `why` is the first part of `notice`.
    """

    jobs: tuple[str, ...]
    reason: str
    message: str
    notice: str
    why: str = ""


@dataclass(frozen=True)
class Decision:
    """`stops` are to be carried out now. `without_retry` names Jobs whose failed tasks should not be replaced
    any more; Kubernetes cannot do that. `left` names the Jobs that cleanPolicy None leaves running, once
    there is nothing else to wait for. `due` is when `decide` must be called again, if nothing else happens
    before.
    """

    stops: tuple[Stop, ...] = ()
    without_retry: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    due: float | None = None


_NOTHING: Final = Decision()


def decide(
    primary: Role, others: Sequence[Role], clean_policy: str, now: float, limits: Limits | None = None
) -> Decision:
    """What to do about the run now. With `clean_policy` "None" nothing is stopped after the primary has
    ended. It does not change what happens before.
    """
    limits = limits or Limits()
    if primary.ended_at is None:
        return _before_the_end(primary, others, now, limits)
    left = [role for role in others if role.ended_at is None and not role.stopped]
    until = {role.job: primary.ended_at + _seconds(primary, role, limits) for role in left}
    due = min((time for time in until.values() if time > now), default=None)
    if clean_policy == "None":
        return Decision(due=due) if due is not None else Decision(left=tuple(until))
    over = [role for role in left if until[role.job] <= now]
    useless = tuple(role.job for role in left if role.role in SERVING and role not in over)
    return Decision(stops=_stops(primary, over, limits), without_retry=useless, due=due)


def _before_the_end(primary: Role, others: Sequence[Role], now: float, limits: Limits) -> Decision:
    """Stops a primary that cannot go on: TensorFlow's coordinator would wait for ever for a lost ps."""
    if primary.stopped or primary.phase is Phase.SUSPENDED:
        return _NOTHING
    missed = [
        # The primary may be about to fail for the same reason: it gets the time to report it.
        (since + limits.failed_seconds, _why_missed(role))
        for role in others
        if (since := _missed_since(role)) is not None
    ]
    missed += [
        (role.stuck_since + _stuck_seconds(role, limits), _why_stuck(role, limits))
        for role in (primary, *others)
        if role.stuck_since is not None and (role is primary or _is_needed(role))
    ]
    if not missed:
        return _NOTHING
    due, why = min(missed)
    if now < due:
        return Decision(due=due)
    notice = f"{why}; {primary.job} is stopped"
    return Decision(stops=(Stop((primary.job,), RUN_FAILED, f"Stopped, since {why}", notice, why),))


def _missed_since(role: Role) -> float | None:
    """Since when the run cannot go on for lack of this role; None while it can."""
    if role.ended_at is not None:
        return role.ended_at if role.phase is Phase.FAILED and _is_needed(role) else None
    return role.short_since if role.left < role.least else None


def _stuck_seconds(role: Role, limits: Limits) -> float:
    return limits.failed_seconds if role.stuck_for_good else limits.stuck_seconds


def _why_stuck(role: Role, limits: Limits) -> str:
    if role.stuck_for_good:
        return f"{role.job} can never start: {role.stuck}"
    return (
        f"{role.job} could not start for {limits.stuck_seconds:g} s (startingDeadlineSeconds): {role.stuck}"
    )


def _why_missed(role: Role) -> str:
    last = f" ({role.last_failure})" if role.last_failure else ""
    if role.ended_at is None:
        left = "1 task is" if role.left == 1 else f"{role.left} tasks are"
        others = f"the others have failed for good{last}"
        return f"{left} left of {role.job}, {others}, and the run needs {role.least}"
    return f"{role.job} has failed{last}, and the run cannot go on without it"


def _is_needed(role: Role) -> bool:
    """Whether the run cannot go on without this role, which has failed for good. That holds for parameter
    servers and workers, unless one of them has succeeded: the runtime releases them only at the end of the
    run.
    """
    return role.role in SERVING and not role.served if role.needed is None else role.needed


def _is_useless(role: Role) -> bool:
    """Whether none of its tasks runs, and starting one makes no sense now that the primary has ended."""
    return role.phase is Phase.SUSPENDED or (role.role in SERVING and role.idle)


def _seconds(primary: Role, role: Role, limits: Limits) -> float:
    """Seconds that the role gets to end by itself, from the primary's end on."""
    if _is_useless(role):
        return 0.0
    if primary.phase is Phase.FAILED:
        return limits.failed_seconds
    if not role.leaves:
        return limits.other_image_seconds
    return limits.evaluator_seconds if role.role == "evaluator" else limits.peers_seconds


def _stops(primary: Role, over: Sequence[Role], limits: Limits) -> tuple[Stop, ...]:
    """One `Stop` for all Jobs that have the same time limit."""
    alike: dict[float, list[str]] = {}
    for role in over:
        alike.setdefault(_seconds(primary, role, limits), []).append(role.job)
    return tuple(_stop(primary, tuple(jobs), seconds) for seconds, jobs in sorted(alike.items()))


def _stop(primary: Role, jobs: tuple[str, ...], seconds: float) -> Stop:
    names = ", ".join(jobs)
    if seconds:
        notice = f"{names} did not end within {seconds:g} s of {primary.job}: stopped"
    else:
        notice = f"nothing of {names} ran when {primary.job} had ended: stopped"
    if primary.phase is Phase.FAILED:
        return Stop(jobs, RUN_FAILED, f"Stopped, since {primary.job} has failed", notice)
    if seconds:
        message = f"Stopped: still running {seconds:g} s after {primary.job} had succeeded"
    else:
        message = f"Stopped: none of its tasks ran, and {primary.job} had succeeded"
    return Stop(jobs, RUN_ENDED, message, notice)
