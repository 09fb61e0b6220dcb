"""What a task says by ending. The manifests' podFailurePolicy is made of these."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of a task.

    The code 1 is left out on purpose: a container ends with it when its command cannot be executed (an
    environment string over 128 KiB, for instance), and so does any script that crashes.
    """

    DONE = 0
    """The task finished, or the chief released it."""
    PROGRAM_ERROR = 70
    """The program or its image is wrong: no TensorFlow, a Python that is too old, a runtime of another
    version than the launcher. A retry cannot help. EX_SOFTWARE of sysexits.h.
    """
    RETRYABLE = 75
    """A peer was lost, or nothing moved for `stall_seconds`. EX_TEMPFAIL of sysexits.h."""
    PREEMPTED = 143
    """The task left on SIGTERM (128 + 15), the code of a process without a handler. It is never 0: a Job
    would count a preempted worker as finished and not replace it.
    """
