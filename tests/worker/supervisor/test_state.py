"""What a supervisor does, stepped through without processes: an event gives the next state and actions."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import Any

import pytest

from worker.collective.elastic_rendezvous import Elastic
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Doing, Done, Failed, Released, Restarted
from worker.contract.run_config import RESTART_SECONDS, ElasticWorkers
from worker.process.lease import Holder
from worker.process.watch import Silence, stalled
from worker.supervisor.state import Do, Emit, Limits, Phase, ReportEnd, Send, Start, State, Step

KILLED = 128 + signal.SIGKILL
FIRST = stalled("starting", 20.0)
TERM, KILL = Send(signal.SIGTERM), Send(signal.SIGKILL)
STALLED = Failed("nothing moved for 20 s while starting", "", ExitCode.RETRYABLE)
OTHER = Holder("mnist", "2", "b", "mnist-chief-0", "now")
CONFIG = {
    "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
    "pods": {"chief": ["chief-0"], "worker": ["worker-0", "worker-2"]},
}


def ordered(role: str | None = None, least: int = 2, **limits: Any) -> State:
    workers = ElasticWorkers(least, 3, 3)
    elastic = None if role is None else Elastic("me-0", role, 0, "a:1", "b:2", workers, 60.0, 60.0)
    return State.ordered("me-0", FIRST, {"worker-0": "b:2"}, Limits(**limits), elastic, 0.0)


def trains(role: str | None = None, **limits: Any) -> State:
    return ordered(role, **limits).began()[0]


def waits(role: str = "worker", **limits: Any) -> State:
    """Returns the state of a member of an elastic collective that is ready for its first generation."""
    state, actions = replace(trains(role, **limits), is_introduced=True).ended(ExitCode.DONE, 1.0)
    assert actions == (Start(None), Do.TAKE_PART)
    assert state.phase is Phase.WAITS
    return state


def in_generation(role: str = "worker", config: dict[str, Any] = CONFIG, **limits: Any) -> State:
    state, actions = waits(role, **limits).given_order({"start": config}, 2.0)
    assert actions == (Start({Env.TF_CONFIG: json.dumps(config)}),)
    return state.began()[0]


def leaves(step: Step, code: int, *actions: object) -> None:
    assert (step[0].exit_code, step[1]) == (code, actions)


def goes_on(step: Step, *actions: object) -> State:
    assert step[0].exit_code is None
    assert step[1] == actions
    return step[0]


# Its end


@pytest.mark.parametrize("code", [0, 1, ExitCode.PROGRAM_ERROR, ExitCode.PREEMPTED, 255])
def test_its_exit_code_is_the_tasks_and_the_lease_is_given_back(code: int) -> None:
    leaves(trains().ended(code, 1.0), code, Do.GIVE_BACK)


def test_a_task_that_lost_another_keeps_the_lease_for_the_next_pod() -> None:
    leaves(trains().ended(ExitCode.RETRYABLE, 1.0), ExitCode.RETRYABLE)


@pytest.mark.parametrize(
    ("number", "named", "advice"),
    [
        (signal.SIGSEGV, "signal 11 (Segmentation fault)", ""),
        (signal.SIGKILL, "signal 9 (Killed)", "; if nobody sent it, the memory limit was reached: raise "),
    ],
)
def test_a_crash_is_told_as_a_shell_would(number: int, named: str, advice: str) -> None:
    message = f"the training process was ended by {named}{advice and advice + 'the memory in resources'}"
    failed = Emit(Failed(message, "", 128 + number))
    leaves(trains().ended(-number, 1.0), 128 + number, failed, Do.GIVE_BACK)


# Restarts in place


def restarted(state: State, now: float, restart: int) -> State:
    """Steps through a kill and the restart after it."""
    step = state.ended(-signal.SIGKILL, now)
    assert step[1][1:] == (Do.CLEAR,)
    state = goes_on(step[0].cleared(True, now), Emit(Restarted(KILLED, restart)), Start({}))
    assert (state.phase, state.heard, state.silence) == (Phase.ORDERED, now, FIRST)
    return state.began()[0]


def test_it_is_started_again_up_to_the_limit() -> None:
    state = restarted(trains(restarts=2).came_further(0.5), 1.0, restart=1)
    state = restarted(state.expects(stalled("training", 5.0)), 2.0, restart=2)
    step = state.ended(-signal.SIGKILL, 3.0)
    leaves(step, KILLED, step[1][0], Do.GIVE_BACK)
    state = restarted(state.came_further(RESTART_SECONDS + 1.5), RESTART_SECONDS + 2.0, restart=3)
    step = state.ended(-signal.SIGKILL, RESTART_SECONDS + 3.0)
    assert step[0].exit_code == KILLED, "only one of them was old"


@pytest.mark.parametrize("code", [0, 1, ExitCode.PROGRAM_ERROR])
def test_it_is_not_where_a_retry_cannot_help(code: int) -> None:
    leaves(trains(restarts=3).ended(code, 1.0), code, Do.GIVE_BACK)


def test_it_is_not_where_it_has_said_so_or_nothing_can_start_it() -> None:
    state = trains(restarts=3)
    leaves(replace(state, may_restart=False).ended(75, 1.0), 75)
    leaves(goes_on(state.ended(75, 1.0), Do.CLEAR).cleared(False, 1.0), 75)


# SIGTERM


def test_it_may_save_for_as_long_as_the_pod_has() -> None:
    state = goes_on(trains(grace=30.0).terminated(1.0), TERM)
    state = goes_on(state.terminated(9.0), TERM)
    state = goes_on(state.looked(27.9))
    assert state.pause(27.9) == pytest.approx(0.1)
    leaves(state.looked(28.0), ExitCode.PREEMPTED, Do.KILL)


@pytest.mark.parametrize(
    ("returncode", "code", "actions"),
    [
        (0, 0, (Do.GIVE_BACK,)),
        (ExitCode.PREEMPTED, ExitCode.PREEMPTED, (Do.GIVE_BACK,)),
        (-signal.SIGKILL, ExitCode.PREEMPTED, (Do.GIVE_BACK,)),
        (ExitCode.RETRYABLE, ExitCode.RETRYABLE, ()),
    ],
)
def test_nothing_is_started_again_after_sigterm(returncode: int, code: int, actions: Any) -> None:
    state = goes_on(trains(restarts=3).terminated(1.0), TERM)
    leaves(state.ended(returncode, 2.0), code, *actions)


def test_sigterm_before_the_process_is_there() -> None:
    state = goes_on(ordered().terminated(1.0), TERM)
    goes_on(state.began(), TERM)
    leaves(state.looked(1.0), ExitCode.PREEMPTED, Do.KILL)


def test_sigterm_between_two_processes() -> None:
    state, _ = trains(restarts=1).ended(75, 1.0)
    state = goes_on(state.terminated(2.0), TERM)
    leaves(state.cleared(True, 3.0), 75)


def test_sigterm_while_it_waits_for_an_order() -> None:
    state = goes_on(waits().terminated(2.0), TERM)
    leaves(state.looked(2.0), ExitCode.PREEMPTED, Do.KILL)


def test_a_silence_does_not_count_after_sigterm() -> None:
    state = goes_on(trains(grace=90.0).terminated(1.0), TERM)
    goes_on(state.looked(80.0))


# Silence


def test_silence_ends_it_and_names_who_does_not_answer() -> None:
    state = goes_on(trains(restarts=3).looked(20.0), Do.PROBE)
    leaves(state.probed({}, 21.0), 75, Do.SHOW_STACKS, Do.KILL, Emit(STALLED))
    named = "; no answer from worker-0 (it hangs)"
    failed = Emit(replace_message(STALLED, named))
    leaves(state.probed({"worker-0": "it hangs"}, 21.0), 75, Do.SHOW_STACKS, Do.KILL, failed)


def replace_message(failed: Failed, added: str) -> Failed:
    return Failed(failed.message + added, failed.traceback, failed.exit_code)


def test_signs_of_life_keep_it_going_and_a_frozen_pod_has_not_been_silent() -> None:
    state = goes_on(trains().signed(15.0).looked(34.0))
    state = goes_on(state.stopped_for(100.0).looked(134.0))
    assert state.pause(134.0) == pytest.approx(1.0)
    goes_on(state.looked(135.0), Do.PROBE)


def test_what_was_agreed_last_is_said_and_done() -> None:
    released = Released(["a"], ["b"])
    state = trains().expects(stalled("training", 5.0)).expects(Silence(0.2, released, 0))
    assert state.pause(0.0) == pytest.approx(0.1), "it looks ten times within a silence, and not more often"
    leaves(state.looked(0.2), 0, Do.KILL, Emit(released))


def test_a_chief_whose_directory_another_has_leaves_at_once() -> None:
    state = trains(restarts=3).lost_lease(OTHER).expects(FIRST)
    step = state.looked(0.0)
    assert step[0].exit_code == ExitCode.RETRYABLE
    assert step[1][0] is Do.KILL
    following = state.ended(-signal.SIGKILL, 1.0)[0].cleared(True, 1.0)[0]
    later = stalled("training", 5.0)
    assert following.expects(later).silence == later, "the next process takes the lease again"


# Elastic collectives


def test_a_task_that_says_nothing_of_itself_takes_no_part() -> None:
    leaves(trains("chief").ended(ExitCode.DONE, 1.0), 0, Do.GIVE_BACK)


def test_the_chiefs_port_may_be_taken() -> None:
    failed = Failed("cannot listen on a:1: Address in use", "", 75)
    leaves(waits("chief").cannot_listen("Address in use"), 75, Do.KILL, Emit(failed))


def test_orders_are_carried_out() -> None:
    state = in_generation()
    assert state.peers == {"chief-0": "a:1", "worker-0": "b:2", "worker-2": "c:3"}
    goes_on(state.given_order({"stop": 1}, 3.0), Send(signal.SIGUSR2))
    goes_on(state.given_order({"done": 1}, 3.0))
    leaves(waits().given_order({"done": 1}, 3.0), 0, Emit(Done()))
    message = "this worker is not taken in: it is old; give it the chief's image and resources"
    refused = Emit(Failed(message, "", ExitCode.PROGRAM_ERROR))
    leaves(waits().given_order({"refuse": "it is old"}, 3.0), ExitCode.PROGRAM_ERROR, Do.KILL, refused)
    late = goes_on(state.given_order({"start": CONFIG}, 3.0), ReportEnd(75))
    assert late == state, "the order was for a connection that is lost"


def test_all_stop_together_and_wait_for_the_next_generation() -> None:
    state = goes_on(in_generation().ended(ExitCode.PREEMPTED, 3.0), ReportEnd(143), Do.CLEAR)
    state = goes_on(state.cleared(True, 3.0), Start(None))
    assert state.phase is Phase.WAITS
    assert goes_on(state.looked(1000.0)).pause(1000.0) == 1.0
    leaves(in_generation().ended(ExitCode.DONE, 3.0), 0, ReportEnd(0), Do.GIVE_BACK)


def test_the_chiefs_end_is_the_runs() -> None:
    state = in_generation("chief")
    leaves(state.ended(ExitCode.DONE, 3.0), 0, ReportEnd(0), Do.FINISH, Do.GIVE_BACK)


def test_the_others_fault_is_no_crash_of_this_one() -> None:
    state = goes_on(in_generation().given_order({"kill": 1}, 3.0), KILL)
    state = goes_on(state.ended(-signal.SIGKILL, 4.0), ReportEnd(75), Do.CLEAR)
    state = goes_on(state.cleared(True, 4.0), Start(None))
    goes_on(state.given_order({"kill": 1}, 5.0))
    crashed = state.given_order({"start": CONFIG}, 5.0)[0].began()[0].ended(-signal.SIGKILL, 6.0)
    assert crashed[1][1:] == (ReportEnd(KILLED), Do.GIVE_BACK), "that was the fault of the one before"
    state = goes_on(in_generation().looked(22.0), Do.PROBE)
    state = goes_on(state.probed({"worker-2": "it hangs"}, 23.0), KILL)
    state = goes_on(state.looked(42.9))
    goes_on(state.ended(-signal.SIGKILL, 24.0), ReportEnd(75), Do.CLEAR)


def test_its_own_fault_is() -> None:
    state, actions = in_generation(restarts=1).ended(-signal.SIGKILL, 3.0)
    assert actions[1:] == (ReportEnd(KILLED), Do.CLEAR)
    goes_on(state.cleared(True, 3.0), Emit(Restarted(KILLED, 1)), Start(None))
    state = goes_on(in_generation().looked(22.0), Do.PROBE)
    assert state.probed({"me-0": "it hangs"}, 23.0)[0].exit_code == 75
    assert state.probed({}, 23.0)[0].exit_code == 75


@pytest.mark.parametrize("change", ["none", "further", "others"])
def test_generations_of_the_same_tasks_fail_only_so_often(change: str) -> None:
    state = in_generation()
    for _ in range(3):
        state = goes_on(state.ended(75, 3.0), ReportEnd(75), Do.CLEAR)
        state = state.cleared(True, 3.0)[0].given_order({"start": CONFIG}, 3.0)[0].began()[0]
    if change == "further":
        state = state.came_further(3.0)
    if change == "others":
        fewer = {"cluster": {"worker": ["b:2"]}, "pods": {"worker": ["worker-0"]}}
        state = replace(state, phase=Phase.WAITS).given_order({"start": fewer}, 3.0)[0].began()[0]
    step = state.ended(75, 3.0)
    if change == "none":
        leaves(step, 75, ReportEnd(75), step[1][1])
        assert "4 times in a row" in str(step[1][1])
    else:
        goes_on(step, ReportEnd(75), Do.CLEAR)


def test_it_says_once_what_it_waits_for_and_for_how_long_at_most() -> None:
    state = waits("chief")
    condition = "workers: 1 of at least 2 are there (minReplicas)"
    state = goes_on(state.waited(1.0, 1, 2.0), Emit(Doing(f"waiting for {condition}")))
    state = goes_on(state.waited(1.0, 1, 60.9))
    goes_on(state.waited(1.0, 0, 2.0), Emit(Doing("waiting for the next generation of workers")))
    failed = Failed(f"waited 60 s for {condition} (startingDeadlineSeconds)", "", 75)
    leaves(state.waited(1.0, 1, 61.0), 75, Emit(failed))
    goes_on(state.waited(None, 0, 99.0), Emit(Doing("waiting for the next generation of workers")))
    goes_on(waits().waited(1.0, 0, 2.0), Emit(Doing("waiting for the chief")))
    goes_on(waits().waited(None, 0, 2.0), Emit(Doing("waiting for the next generation of workers")))
    goes_on(in_generation().waited(1.0, 0, 99.0))


def test_an_extra_worker_leaves_its_place_without_using_up_a_try() -> None:
    state = waits()
    assert state.elastic is not None
    state = replace(state, elastic=replace(state.elastic, is_extra=True))
    state = goes_on(state.waited(1.0, 0, 2.0), Emit(Doing("waiting for the chief")))
    failed = Failed("waited 60 s for the chief (leaves its place in the queue)", "", 143)
    leaves(state.waited(1.0, 0, 61.0), 143, Emit(failed))
