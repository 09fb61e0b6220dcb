"""The errors of the launcher, as one tree.

    LauncherError            any of them; `launcher.cli.parser` turns it into one message and an exit code
    ├── SpecError       2    the file is not a valid training cluster; carries every Problem found
    ├── NotFoundError   3    there is no such run, or no such task of it
    ├── ConflictError   4    the run's state forbids it: its name is in use, it has ended already
    └── BackendError    5    the cluster or this machine cannot be reached, or refused

Other exit codes: 0, done; 1, the run was carried out, and failed; 2, wrong usage of the command line, or a
Python that lacks packages; 3 of `verify`, the trainings differ; 130, interrupted by Ctrl-C; 70, an error in
the launcher itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from launcher.redaction import redacted_message

DIFFERS: Final = 3
"""Of `verify`, which looks for no run."""

INTERRUPTED: Final = 130
"""128 + SIGINT, as a shell reports it."""


class LauncherError(Exception):
    """One message for the user, a hint that says what to do, and the command's exit code. Secrets are removed
    from both texts.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = redacted_message(message)
        self.hint = redacted_message(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class Problem(NamedTuple):
    """One error in a file.

    `path` is the field, as in `spec.worker.replicas` or `spec.worker.env[0].name`, "" for the file as a
    whole; `line` and `column` count from 1, and are 0 where they are unknown.
    """

    source: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class SpecError(LauncherError):
    """The file is not a valid training cluster. `problems` has all errors, in the file's order."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotFoundError(LauncherError):
    """There is no such run, or no such task of it."""

    exit_code = 3


class ConflictError(LauncherError):
    """The run's state forbids what was asked."""

    exit_code = 4


class BackendError(LauncherError):
    """The cluster or this machine cannot be reached, or refused."""

    exit_code = 5
