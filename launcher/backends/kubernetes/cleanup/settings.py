"""How long is waited for the rest of a run, when its primary has ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Seconds that the other tasks have to leave by themselves when the primary has succeeded, the worker
    runtime's and those of images that do not know how to, or when it has failed; and that they then have to
    be gone, their grace of mostly 30 s included, before we wait no longer.
    """

    peers_seconds: float = 60.0
    strangers_seconds: float = 10.0
    failed_seconds: float = 10.0
    gone_seconds: float = 180.0
