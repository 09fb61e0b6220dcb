"""When a training process that has failed is started again in its pod."""

from __future__ import annotations

import signal

import pytest

from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import RESTART_SECONDS
from worker.supervisor.restart_limit import Restarts

KILLED = 128 + signal.SIGKILL


@pytest.mark.parametrize("code", [ExitCode.RETRYABLE, ExitCode.PREEMPTED, KILLED, 128 + signal.SIGSEGV])
def test_what_a_retry_may_fix_is_tried_again(code: int) -> None:
    assert Restarts(1).allowed(code)


@pytest.mark.parametrize("code", [0, 1, 2, ExitCode.PROGRAM_ERROR, 128, 255])
def test_what_a_retry_cannot_fix_is_not(code: int) -> None:
    assert not Restarts(1).allowed(code)


def test_an_old_restart_is_forgotten_when_the_task_has_come_further() -> None:
    restarts = Restarts(2).added(0.0).added(1.0)
    assert not restarts.allowed(KILLED)
    restarts = restarts.came_further(RESTART_SECONDS - 1.0)
    assert not restarts.allowed(KILLED), "they are not old yet"
    restarts = restarts.came_further(RESTART_SECONDS + 0.5)
    assert restarts.allowed(KILLED)
    restarts = restarts.added(RESTART_SECONDS + 0.6)
    assert not restarts.allowed(KILLED)
    assert restarts.count == 3
