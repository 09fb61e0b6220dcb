"""Stops what is left of a run when its primary has ended, as the run's cleanPolicy says; and the primary when
what it needs has failed for good.
"""

from __future__ import annotations

import time

from launcher.backends.kubernetes.api.api_errors import ApiError, UnreachableError
from launcher.backends.kubernetes.api.client import Client
from launcher.backends.kubernetes.cleanup import stopping
from launcher.backends.kubernetes.cleanup.settings import Settings
from launcher.backends.kubernetes.state.run_state import STOPPED_ANNOTATION, Picture
from launcher.status import Phase, RunStatus

_TERMINAL = (Phase.SUCCEEDED, Phase.FAILED)


class Janitor:
    """Sees to a run for whoever follows it. The worker runtime's tasks leave by themselves and get the time
    to; those of any other image are stopped soon.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._since: float | None = None
        self._doomed_since: float | None = None
        self._ending: list[str] | None = None
        """The primary, once it was told to stop before its end."""
        self._stopped: list[str] | None = None
        self._gone_by = 0.0
        self.gave_up = False
        """What is left does not end, or is to be left alone."""

    def see_to(self, status: RunStatus, picture: Picture) -> list[str]:
        """Returns what to tell the user."""
        if status.ended:
            return []
        now = time.monotonic()
        if status.phase not in _TERMINAL:
            return self._see_to_primary(status, picture, now)
        if self._since is None:
            self._since = now
        if self._stopped is not None:
            return self._wait_for(self._stopped, now)
        grace = self._grace(status, picture)
        if now < self._since + grace:
            return []
        primary = picture.primary
        if primary is not None and primary["cleanPolicy"] == "None":
            self.gave_up = True
            left = ", ".join(role.job for role in status.roles if role.phase not in _TERMINAL)
            return [f"left running, since runPolicy.cleanPolicy is None: {left}"]
        return self._stop(status, picture, grace)

    def _see_to_primary(self, status: RunStatus, picture: Picture, now: float) -> list[str]:
        """Ends a run that cannot go on: TensorFlow's coordinator would wait for what does not come back.

        After a while: its tasks' end may be the first that is seen of a primary that fails for the same.
        """
        if self._ending is not None:
            return self._wait_for(self._ending, now)
        role, primary = status.doomed_by, picture.primary
        if role is None or primary is None or STOPPED_ANNOTATION in primary["metadata"]["annotations"]:
            self._doomed_since = None
            return []
        if self._doomed_since is None:
            self._doomed_since = now
        if now < self._doomed_since + self._settings.failed_seconds:
            return []
        task = status.last_failure(role.role)
        why = f"{role.job} has failed"
        if task is not None:
            why += f" ({task.name} ended with exit code {task.exit_code})"
        message = f"Stopped, since {why}, and the run cannot go on without it"
        try:
            self._ending = stopping.stop(self._client, [primary], "RunFailed", message)
        except (ApiError, UnreachableError) as error:
            if isinstance(error, UnreachableError) or error.passing:
                return []  # again at the next look
            if error.status == 403:
                self._ending, self._gone_by = [], float("inf")
                return [f"{why}, and the run cannot go on without it: {error.message}"]
            raise
        self._gone_by = now + self._settings.gone_seconds
        return [f"{why}, and the run cannot go on without it: {status.primary.job} is stopped"]

    def _grace(self, status: RunStatus, picture: Picture) -> float:
        """Seconds that what is left has to leave by itself."""
        if status.phase is Phase.FAILED:
            return self._settings.failed_seconds
        left = {role.job for role in status.roles if role.phase not in _TERMINAL}
        if any(job["leaves"] for job in picture.jobs if job["metadata"]["name"] in left):
            return self._settings.peers_seconds
        return self._settings.strangers_seconds

    def _stop(self, status: RunStatus, picture: Picture, grace: float) -> list[str]:
        job = status.primary.job
        if status.phase is Phase.SUCCEEDED:
            reason = "RunEnded"
            message = f"Stopped: still running {grace:g} s after {job} had succeeded"
        else:
            reason, message = "RunFailed", f"Stopped, since {job} has failed"
        try:
            stopped = stopping.stop(self._client, picture.jobs, reason, message)
        except (ApiError, UnreachableError) as error:
            if isinstance(error, UnreachableError) or error.passing:
                return []  # again at the next look
            if error.status == 403:
                # Who may only look must not lose sight of the run's end for it.
                self.gave_up = True
                return [f"what is left of the run goes on: {error.message}"]
            raise
        self._stopped = stopped
        self._gone_by = time.monotonic() + self._settings.gone_seconds
        return [f"{', '.join(stopped)} did not end within {grace:g} s of {job}: stopped"] if stopped else []

    def _wait_for(self, stopped: list[str], now: float) -> list[str]:
        if now < self._gone_by:
            return []
        self.gave_up = True
        return [f"{', '.join(stopped)} was stopped and does not end; its nodes may not answer"]
