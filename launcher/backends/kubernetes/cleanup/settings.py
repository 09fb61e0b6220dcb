"""How long is waited at a run's end."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.backends.run_policy import Limits


@dataclass(frozen=True)
class CleanUpSettings(Limits):
    """The policy's limits; and the seconds that tasks that were stopped have to be gone, their grace of
    mostly 30 s included, before we wait no longer: a node that does not answer never says that its
    pods have ended.
    """

    gone_seconds: float = 180.0
