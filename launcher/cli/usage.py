"""The error of arguments that contradict each other."""

from __future__ import annotations

from launcher.errors import Problem, SpecError


class UsageError(SpecError):
    """Some arguments contradict each other."""


def wrong_usage(option: str, message: str) -> UsageError:
    """Returns the error about an option or an argument."""
    return UsageError([Problem(option, 0, 0, "", message)])
