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
    assert Restarts(1).allowed(code, 0.0)


@pytest.mark.parametrize("code", [0, 1, 2, ExitCode.PROGRAM_ERROR, 128, 255])
def test_what_a_retry_cannot_fix_is_not(code: int) -> None:
    assert not Restarts(1).allowed(code, 0.0)


def test_an_old_restart_is_forgotten_when_the_task_has_come_further() -> None:
    restarts = Restarts(2).added(KILLED, 0.0).added(KILLED, 1.0)
    assert not restarts.allowed(KILLED, 500.0)
    restarts = restarts.came_further(RESTART_SECONDS - 1.0)
    assert not restarts.allowed(KILLED, 600.0), "they are not old yet"
    restarts = restarts.came_further(RESTART_SECONDS + 0.5)
    assert restarts.allowed(KILLED, 601.0)
    restarts = restarts.added(KILLED, RESTART_SECONDS + 0.6)
    assert not restarts.allowed(KILLED, 700.0)
    assert restarts.count == 3


def test_leaving_for_another_task_uses_up_nothing_once_something_was_saved() -> None:
    restarts = Restarts(1)
    for count in range(1, 6):
        restarts = restarts.came_further(float(count))
        assert restarts.allowed(ExitCode.PREEMPTED, float(count))
        restarts = restarts.added(ExitCode.PREEMPTED, float(count))
        assert restarts.count == count
    restarts = restarts.added(ExitCode.PREEMPTED, 6.0)
    assert not restarts.allowed(ExitCode.PREEMPTED, 6.0), "it has saved nothing, and may leave for ever"
    assert not Restarts(0).came_further(1.0).allowed(ExitCode.PREEMPTED, 1.0)


def test_what_ends_each_process_at_once_is_tried_once_more() -> None:
    restarts = Restarts(3).added(KILLED, 10.0)
    assert not restarts.allowed(KILLED, 20.0)
    assert restarts.allowed(KILLED, 100.0), "it has worked for long"
    assert restarts.allowed(ExitCode.RETRYABLE, 20.0), "a task that was lost may be back"
    assert restarts.came_further(15.0).allowed(KILLED, 20.0)
    assert restarts.added(ExitCode.RETRYABLE, 15.0).allowed(KILLED, 20.0)
