"""How long to wait at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.backends.run_policy import Limits


@dataclass(frozen=True)
class CleanUpSettings(Limits):
    """The policy's limits, and `gone_seconds`: how long to wait for the end of tasks that were stopped, with
    their grace period of mostly 30 s. A node that does not answer never reports that its pods have ended.
    """

    gone_seconds: float = 180.0
