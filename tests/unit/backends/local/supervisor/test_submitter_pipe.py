"""The pipes that a process holds for the runs that end with it."""

import os
import select
from pathlib import Path

from launcher.backends.local.supervisor import submitter_pipe


def is_cut(read: int) -> bool:
    poll = select.poll()
    poll.register(read, select.POLLIN)
    return bool(poll.poll(0))


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_a_run_that_has_ended_holds_no_descriptor() -> None:
    submitter_pipe.new()  # it frees those of earlier tests whose runs have ended
    os.close(submitter_pipe.new())
    before = descriptors()
    for _ in range(100):
        os.close(submitter_pipe.new())
    assert descriptors() <= before + 1


def test_one_that_goes_on_keeps_its_own() -> None:
    read = submitter_pipe.new()
    os.close(submitter_pipe.new())
    os.close(submitter_pipe.new())
    assert not is_cut(read)
    os.close(read)
