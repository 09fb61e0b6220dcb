"""Carries out `run_end_rule` on a cluster: stops the other Jobs when the primary has ended, and the primary
when a Job that it needs has failed for good.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.backends import run_end_rule
from launcher.backends.kubernetes.api_server.api_errors import ApiError, UnreachableError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.run_end import stopping
from launcher.backends.kubernetes.state.run_state import STOPPED_ANNOTATION, RunState
from launcher.backends.kubernetes.state.waiting_reasons import (
    at_the_end,
    cannot_be_mended,
    cannot_mend_itself,
)
from launcher.backends.run_end_rule import Limits, Role, Since, Stop, least
from launcher.status import Phase, RoleStatus, RunStatus

_TERMINAL = (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True)
class CleanUpSettings(Limits):
    """The policy's limits, and `gone_seconds`: how long to wait for the end of tasks that were stopped, with
    their grace period of mostly 30 s. A node that does not answer never reports that its pods have ended.
    """

    gone_seconds: float = 180.0


class CleanUp:
    """Carries out the policy while a command follows the run. Times are those at which this command first saw
    a change.

    A Job cannot be told to stop replacing failed pods: a pod that its controller starts until then is stopped
    with the others.
    """

    def __init__(self, client: Client, settings: CleanUpSettings) -> None:
        self._client = client
        self._settings = settings
        self._ended = Since()
        self._stopped_at: dict[str, float] = {}
        """When a Job was stopped, by this process or another one; by the Job's name."""
        self._short = Since()
        """Fewer tasks are left than the run needs."""
        self._stuck = Since()
        self._tasks: _Tasks | None = None
        self._ending = False
        """This process has stopped the primary before its end."""
        self._forbidden = False
        """The user has no right to stop Jobs."""
        self.gave_up = False
        """The other Jobs do not end, or cleanPolicy None leaves them running: there is nothing more to wait
        for.
        """

    def see_to(self, status: RunStatus, run_state: RunState) -> list[str]:
        """Returns what to tell the user."""
        if status.ended:
            return []
        now = time.monotonic()
        primary, *others = self._roles(status, run_state, now)
        policy, settings = "", self._settings
        if run_state.primary is not None:
            policy = run_state.primary["cleanPolicy"]
            if (deadline := run_state.primary["startingDeadline"]) is not None:
                settings = replace(settings, stuck_seconds=deadline)
        decision = run_end_rule.decide(primary, others, policy, now, settings)
        if decision.left:
            self.gave_up = True
            return [f"left running, since runPolicy.cleanPolicy is None: {', '.join(decision.left)}"]
        notices = [notice for stop in decision.stops for notice in self._stop(stop, primary, run_state, now)]
        return notices or self._wait_for(primary, others, now)

    def _roles(self, status: RunStatus, run_state: RunState, now: float) -> list[Role]:
        """The Jobs as the policy sees them, the primary first."""
        leaving = set()
        for job in run_state.jobs:
            if job["leaves"]:
                leaving.add(job["metadata"]["name"])
            if STOPPED_ANNOTATION in job["metadata"]["annotations"]:
                self._stopped_at.setdefault(job["metadata"]["name"], now)
        if self._tasks is None or self._tasks.status is not status:
            self._tasks = _Tasks.of(status)
        phases, failures = self._tasks.phases, self._tasks.last_failures
        by_role = {role.role: role.desired - role.given_up for role in status.roles}
        left = {role: run_end_rule.left(role, by_role) for role in by_role}
        return [
            Role(
                role.role,
                role.job,
                role.phase,
                # A JobSet may start again what had ended.
                ended_at=self._ended.see(role.job, is_so=role.phase in _TERMINAL, now=now),
                leaves=role.job in leaving,
                idle=not phases[role.role, Phase.RUNNING]
                and phases[role.role, Phase.SUCCEEDED] < role.desired,
                served=bool(role.succeeded),
                needed=role.needed,
                stopped=role.job in self._stopped_at,
                last_failure=failures[role.role],
                least=least(role.elastic),
                left=left[role.role],
                short_since=self._short.see(role.job, is_so=left[role.role] < least(role.elastic), now=now),
                stuck=at_the_end(self._tasks.hopeless.get(role.role, role.message)),
                stuck_since=self._stuck.see(
                    role.job,
                    is_so=role.role in self._tasks.hopeless or _is_stuck(role, run_state),
                    now=now,
                ),
                stuck_for_good=role.role in self._tasks.hopeless,
            )
            for role in status.roles
        ]

    def _stop(self, stop: Stop, primary: Role, run_state: RunState, now: float) -> list[str]:
        is_primary = primary.job in stop.jobs
        if is_primary and self._forbidden:
            return []
        jobs = [job for job in run_state.jobs if job["metadata"]["name"] in stop.jobs]
        try:
            stopped = stopping.stop(self._client, jobs, stop.reason, stop.message)
        except (ApiError, UnreachableError) as error:
            if isinstance(error, UnreachableError) or error.passing:
                return []  # tried again at the next call
            if error.status != 403:
                raise
            # A user who may only read still sees the run's end.
            if is_primary:
                self._forbidden = True
                return [f"{stop.why}: {error.message}"]
            self.gave_up = True
            return [f"what is left of the run is still running: {error.message}"]
        self._ending = self._ending or primary.job in stopped
        self._stopped_at.update(dict.fromkeys(stopped, now))
        return [stop.notice] if stopped else []

    def _wait_for(self, primary: Role, others: Sequence[Role], now: float) -> list[str]:
        """Gives up if all Jobs that are waited for were stopped `gone_seconds` ago."""
        if primary.ended_at is not None:
            awaited = [role for role in others if _goes_on(role)]
        else:
            awaited = [primary] if self._ending else []
        times = [self._stopped_at.get(role.job) for role in awaited]
        if not times or any(time is None or now < time + self._settings.gone_seconds for time in times):
            return []
        self.gave_up = True
        names = ", ".join(role.job for role in awaited)
        return [f"{names} was stopped and does not end; its nodes may not answer"]


def _goes_on(role: Role) -> bool:
    return role.ended_at is None and role.phase is not Phase.SUSPENDED


def _is_stuck(role: RoleStatus, run_state: RunState) -> bool:
    """Whether none of its tasks can start unless somebody mends something, or the file says how long a start
    may take.
    """
    counts = run_state.has_starting_deadline or cannot_mend_itself(role.reason, role.message)
    return role.waiting and not role.ready and counts


@dataclass(frozen=True)
class _Tasks:
    """What the policy asks of a status' tasks. There may be a thousand, and a status is seen to several times
    a second until it changes.
    """

    status: RunStatus
    phases: Counter[tuple[str, Phase]]
    """How many tasks of a role are in a phase."""
    last_failures: dict[str, str]
    """By role; empty where none has failed."""
    hopeless: dict[str, str]
    """Why a task of the role can never start, by role."""

    @classmethod
    def of(cls, status: RunStatus) -> _Tasks:
        failures = {}
        for role in status.roles:
            task = status.last_failure(role.role)
            failures[role.role] = "" if task is None else f"{task.name} ended with exit code {task.exit_code}"
        hopeless = {
            task.role: task.message for task in status.tasks if cannot_be_mended(task.reason, task.message)
        }
        return cls(status, Counter((task.role, task.phase) for task in status.tasks), failures, hopeless)
