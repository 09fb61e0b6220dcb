"""What is stopped when a run comes to its end, when, and why: one policy for both backends.

Pure: whoever sees to a run says how its Jobs are and what time it is (seconds on any scale that does not go
back), and does what `decide` answers. On Kubernetes that is who follows the run, here the run's supervisor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from launcher.status import SERVING, Phase

PEERS_SECONDS: Final = 60.0
"""A worker or ps of the worker runtime leaves within 1 s of its release, which the chief sees to before its
own end. One that is still there after a minute was not released: its chief could not reach it, or is a script
that does not call `worker.release`.
"""

EVALUATOR_SECONDS: Final = 600.0
"""The runtime's evaluator ends by itself when the last checkpoint is scored, which is as long as it takes to
go through the evaluation dataset. That checkpoint appears shortly before the chief's end.
"""

OTHER_IMAGE_SECONDS: Final = 10.0
"""Nobody tells the tasks of another image that the run has ended. Those that end together with the primary
get the time to say so themselves; servers would stay for ever.
"""

FAILED_SECONDS: Final = 10.0
"""From a failure on, until what it ends is stopped: a task that fails of the same cause gets the time to say
so itself, and one that its failing chief has released the time to leave.
"""


@dataclass(frozen=True)
class Limits:
    """How long tasks get to end by themselves, in seconds; the constants of these names say why."""

    peers_seconds: float = PEERS_SECONDS
    evaluator_seconds: float = EVALUATOR_SECONDS
    other_image_seconds: float = OTHER_IMAGE_SECONDS
    failed_seconds: float = FAILED_SECONDS


@dataclass(frozen=True)
class Role:
    """One Job of the run, as it is now.

    `phase` is Succeeded or Failed once its pods are gone; `ended_at` is when that was, or was first seen.
    `leaves`: its tasks leave by themselves at the run's end. `idle`: none of its tasks runs, and not all have
    succeeded. `served`: one has succeeded. `needed`: whether the run fails when the Job does, None where the
    Job does not say. `stopped`: it was told to stop already. `last_failure` is the task that failed last, as
    `mnist-ps-0 ended with exit code 1`, "" where none is known.
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


@dataclass(frozen=True)
class Stop:
    """These Jobs are to fail now, with this reason and message. `notice` is for the user who looks on; `why`
    is how it begins where the primary is to be stopped.
    """

    jobs: tuple[str, ...]
    reason: str
    message: str
    notice: str
    why: str = ""


@dataclass(frozen=True)
class Decision:
    """`stops` are to be carried out now. `without_retry` names Jobs whose failed tasks are not replaced any
    more, where that can be had. `left` names those that cleanPolicy None leaves running, once nothing else is
    to be waited for. At `due` there will be more to do, if nothing else happens before.
    """

    stops: tuple[Stop, ...] = ()
    without_retry: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    due: float | None = None


_NOTHING: Final = Decision()


def decide(
    primary: Role, others: Sequence[Role], clean_policy: str, now: float, limits: Limits | None = None
) -> Decision:
    """What to do about the run now. `clean_policy` is the file's; None leaves running what the primary's end
    leaves, and what the primary needs is no matter of it.
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
    """Ends a run that cannot go on: TensorFlow's coordinator would wait for what does not come back."""
    if primary.stopped or primary.phase is Phase.SUSPENDED:
        return _NOTHING
    missed = [
        (role.ended_at, role)
        for role in others
        if role.ended_at is not None and role.phase is Phase.FAILED and _is_needed(role)
    ]
    if not missed:
        return _NOTHING
    since, role = min(missed, key=lambda found: found[0])
    # The failure may be the first that is seen of a primary that fails of the same.
    due = since + limits.failed_seconds
    if now < due:
        return Decision(due=due)
    why = f"{role.job} has failed" + (f" ({role.last_failure})" if role.last_failure else "")
    why += ", and the run cannot go on without it"
    notice = f"{why}: {primary.job} is stopped"
    return Decision(stops=(Stop((primary.job,), "RunFailed", f"Stopped, since {why}", notice, why),))


def _is_needed(role: Role) -> bool:
    """Whether the run cannot go on without a role that has failed for good: without its parameter servers, or
    all workers. It can when one of them has `served` to its end: the runtime's are released at the run's.
    """
    return role.role in SERVING and not role.served if role.needed is None else role.needed


def _is_useless(role: Role) -> bool:
    """Whether nothing of it runs, and what would be started serves nobody, now that the primary has ended."""
    return role.phase is Phase.SUSPENDED or (role.role in SERVING and role.idle)


def _seconds(primary: Role, role: Role, limits: Limits) -> float:
    """What the role gets to end by itself, from the primary's end on."""
    if _is_useless(role):
        return 0.0
    if primary.phase is Phase.FAILED:
        return limits.failed_seconds
    if not role.leaves:
        return limits.other_image_seconds
    return limits.evaluator_seconds if role.role == "evaluator" else limits.peers_seconds


def _stops(primary: Role, over: Sequence[Role], limits: Limits) -> tuple[Stop, ...]:
    """One for all Jobs of which the same is said."""
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
        return Stop(jobs, "RunFailed", f"Stopped, since {primary.job} has failed", notice)
    if seconds:
        message = f"Stopped: still running {seconds:g} s after {primary.job} had succeeded"
    else:
        message = f"Stopped: none of its tasks ran, and {primary.job} had succeeded"
    return Stop(jobs, "RunEnded", message, notice)
