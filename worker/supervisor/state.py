"""What a supervisor knows and does, as a value: no processes, no clock. `supervisor` carries it out.

Each method of `State` is something that happens. It returns the next state, and the actions in their order.
`now` is in seconds of a clock that does not go back.

A training process that loses a peer, or is killed, is started again at once and in the same pod, with the
pod's address: see `restart_limit`. A Job would make another pod, after 10 s and more. A process that was
silent is not: its node may be the reason, and another pod may get another node.

In an elastic collective the chief's supervisor decides who trains together: see `elastic_generations`. There
the first process only says what this task runs, and each later one trains in one generation.
"""

from __future__ import annotations

import enum
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Union

from worker.collective.elastic_rendezvous import Elastic
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Content, Doing, Done, Failed, Restarted
from worker.contract.run_config import GRACE_SECONDS
from worker.peers import probes
from worker.process.lease import Holder
from worker.process.watch import Silence, overtaken
from worker.supervisor.restart_limit import Restarts

_GRACE_MARGIN = 3.0
"""Seconds before the end of the pod's grace period at which the training process is killed, which saves its
position until then.
"""
_LOOKS = 10
"""Number of times within a silence at which the supervisor checks that it was not stopped itself."""
_WAITING_SECONDS = 1.0
"""Interval between two looks while there is no training process."""
_FAILED_GENERATIONS = 3
"""Limit for generations of the same tasks to fail, one after the other, before they have saved anything."""
_NO_GENERATION_SAVED = (
    f"{_FAILED_GENERATIONS + 1} times in a row the same tasks began to train together, and lost one of them "
    "before anything was saved: this pod ends, and its Job makes another"
)


@dataclass(frozen=True)
class Limits:
    """`grace` is the pod's, in seconds. The training process is started again at most `restarts` times within
    ten minutes. In a `collective` no task can go on without the others.
    """

    grace: float = GRACE_SECONDS
    restarts: int = 0
    collective: bool = False


@dataclass(frozen=True)
class Emit:
    """Print a record."""

    content: Content


@dataclass(frozen=True)
class Send:
    """Send a signal to the training process, if there is one."""

    number: signal.Signals


@dataclass(frozen=True)
class Start:
    """Have a starter; unless `environment` is None, order a training process with these further variables."""

    environment: Mapping[str, str] | None


@dataclass(frozen=True)
class ReportEnd:
    """Tell the chief's supervisor that the training process has ended."""

    code: int


class Do(enum.Enum):
    """The other actions."""

    KILL = enum.auto()
    """End the training process, its starter, and what they have started."""
    SHOW_STACKS = enum.auto()
    """Have the training process print all stacks: only they show where it hangs."""
    PROBE = enum.auto()
    """Look which peers do not answer. `State.probed` follows."""
    CLEAR = enum.auto()
    """Remove what the training process has left, and in a collective wait until the other tasks' have ended,
    too. `State.cleared` follows.
    """
    GIVE_BACK = enum.auto()
    """Give back the lease on the model directory."""
    TAKE_PART = enum.auto()
    """Join the elastic collective, and as its chief's supervisor decide who trains together."""
    FINISH = enum.auto()
    """Wait until the other tasks have heard that the run is over."""


Action = Union[Emit, Send, Start, ReportEnd, Do]
Step = tuple["State", tuple[Action, ...]]


class Phase(enum.Enum):
    """Where the training process is."""

    ORDERED = enum.auto()
    TRAINS = enum.auto()
    CLEARS = enum.auto()
    """It has ended, and another one may follow."""
    WAITS = enum.auto()
    """There is none until the chief's supervisor orders one."""


@dataclass(frozen=True)
class State:
    """The state of the supervisor of `task`. `peers` (pod name to `host:port`) are the tasks that may cause a
    stall; in an elastic collective all of the present generation.
    """

    task: str
    first: Silence
    """Valid for each training process until it sends another."""
    peers: Mapping[str, str]
    limits: Limits
    elastic: Elastic | None
    restarts: Restarts
    silence: Silence
    heard: float
    """When the last sign of life came."""
    phase: Phase = Phase.ORDERED
    may_restart: bool = True
    kill_at: float | None = None
    """When the pod's grace period ends, once it is told to stop."""
    is_overtaken: bool = False
    """Whether another chief has the model directory."""
    is_introduced: bool = False
    """Whether the first process of an elastic collective has said what it runs."""
    is_member: bool = False
    is_others_fault: bool = False
    """Whether the training process is ended because another task of its generation has failed."""
    failed_generations: int = 0
    waits_for: str = ""
    """What it has said last."""
    ended_with: int = 0
    """The exit code of the process that has ended, in phase CLEARS."""
    exit_code: int | None = None
    """This task's, once it leaves."""

    @classmethod
    def ordered(
        cls,
        task: str,
        first: Silence,
        peers: Mapping[str, str],
        limits: Limits,
        elastic: Elastic | None,
        now: float,
    ) -> State:
        """Returns the state of a supervisor that has just ordered its first training process."""
        return cls(task, first, peers, limits, elastic, Restarts(limits.restarts), first, now)

    # What the training process does

    def began(self) -> Step:
        """The training process is there."""
        late: tuple[Action, ...] = (Send(signal.SIGTERM),) if self._is_told_to_stop else ()
        return replace(self, phase=Phase.TRAINS), late

    def signed(self, now: float) -> State:
        """A sign of life has come."""
        return replace(self, heard=now)

    def expects(self, silence: Silence) -> State:
        """The training process has said how long it may be silent from now on."""
        return self if self.is_overtaken else replace(self, silence=silence)

    def came_further(self, now: float) -> State:
        """The task has come further than before its last restart."""
        return replace(self, failed_generations=0, restarts=self.restarts.came_further(now))

    def introduced(self) -> State:
        """The task has said what it runs."""
        return replace(self, is_introduced=True)

    def restarts_if(self, again: bool) -> State:
        """Whether another process may follow in this pod."""
        return replace(self, may_restart=again)

    def ended(self, returncode: int, now: float) -> Step:
        """The training process has ended, by a signal where `returncode` is negative."""
        code, actions = self._exit_code(returncode)
        if self.elastic is not None and not self.is_member and code == ExitCode.DONE and self.is_introduced:
            state, start = replace(self, is_member=True)._started(now)
            return state, (*start, Do.TAKE_PART)
        if self.is_member:
            actions += (ReportEnd(code),)
            if self._is_chief and code == ExitCode.DONE:
                actions += (Do.FINISH,)
        state = replace(self, phase=Phase.CLEARS, ended_with=code)
        if self._ends_a_generation(code):
            state = replace(state, failed_generations=self.failed_generations + (code == ExitCode.RETRYABLE))
            goes_on = state.failed_generations <= _FAILED_GENERATIONS
            if not goes_on:
                actions += (Emit(Failed(_NO_GENERATION_SAVED, "", ExitCode.RETRYABLE)),)
        else:
            goes_on = self.restarts.allowed(code, now)
        if not goes_on or self._is_told_to_stop or not self.may_restart:
            return state._left(*actions)
        return state, (*actions, Do.CLEAR)

    def cleared(self, can_start: bool, now: float) -> Step:
        """What the training process had left is removed, as far as another one `can_start` at all."""
        if not can_start:
            return self._left()
        if self._ends_a_generation(self.ended_with):
            return self._started(now)
        if self._is_told_to_stop:
            return self._left()
        restarts = self.restarts.added(self.ended_with, now)
        state, start = replace(self, restarts=restarts)._started(now)
        return state, (Emit(Restarted(self.ended_with, restarts.count)), *start)

    # What others do

    def terminated(self, now: float) -> Step:
        """SIGTERM has come: the pod is to stop."""
        kill_at = self.kill_at or now + max(0.0, self.limits.grace - _GRACE_MARGIN)
        return replace(self, kill_at=kill_at), (Send(signal.SIGTERM),)

    def lost_lease(self, other: Holder) -> State:
        """Another chief has the model directory: this one has no time left."""
        return replace(self, is_overtaken=True, silence=overtaken(other))

    def given_order(self, order: Mapping[str, Any], now: float) -> Step:
        """The chief's supervisor has given an order: see `elastic_generations.Order`."""
        if "start" in order:
            return self._begins(order["start"], now)
        if "stop" in order:
            return self, (Send(signal.SIGUSR2),)
        if "kill" in order:
            return self._ends_for_others()
        if "refuse" in order:
            advice = "give it the chief's image and resources"
            message = f"this worker is not taken in: {order['refuse']}; {advice}"
            failed = Failed(message, "", ExitCode.PROGRAM_ERROR)
            return replace(self, exit_code=ExitCode.PROGRAM_ERROR), (Do.KILL, Emit(failed))
        if "done" in order and self.phase is Phase.WAITS:
            return replace(self, exit_code=ExitCode.DONE), (Emit(Done()),)
        return self, ()

    def cannot_listen(self, reason: str) -> Step:
        """The port at which the chief's supervisor takes the others in is not free."""
        address = self.elastic.address if self.elastic is not None else ""
        failed = Failed(f"cannot listen on {address}: {reason}", "", ExitCode.RETRYABLE)
        return replace(self, exit_code=ExitCode.RETRYABLE), (Do.KILL, Emit(failed))

    # Time passes

    def stopped_for(self, seconds: float) -> State:
        """The supervisor itself was stopped (a frozen pod, a suspended machine), and so was the child."""
        return replace(self, heard=self.heard + seconds)

    def looked(self, now: float) -> Step:
        """Nothing else has happened until `now`."""
        if self.kill_at is not None:
            if now < self.kill_at and self.phase is Phase.TRAINS:
                return self, ()
            return replace(self, exit_code=ExitCode.PREEMPTED), (Do.KILL,)
        if self.phase is Phase.WAITS or now - self.heard < self.silence.seconds:
            return self, ()
        if self.silence.blame:
            return self, (Do.PROBE,)
        return replace(self, exit_code=self.silence.exit_code), (Do.KILL, Emit(self.silence.content))

    def probed(self, faults: Mapping[str, str], now: float) -> Step:
        """The training process was silent, and these peers do not answer. In an elastic collective it is not
        to blame where it only waits for one that hangs elsewhere.
        """
        if self.is_member and faults and self.task not in faults:
            return self.signed(now)._ends_for_others()
        content = self.silence.content
        if faults and isinstance(content, Failed):
            message = f"{content.message}; no answer from {probes.described(faults)}"
            content = Failed(message, content.traceback, content.exit_code)
        return replace(self, exit_code=self.silence.exit_code), (Do.SHOW_STACKS, Do.KILL, Emit(content))

    def waited(self, since: float | None, missing: int, now: float) -> Step:
        """No order has come. `since` is when the chief's supervisor was lost; in the chief, since when no
        generation trains, and `missing` workers lack for one.
        """
        if self.elastic is None or self.phase is not Phase.WAITS:
            return self, ()
        least = self.elastic.workers.min
        if missing:
            waits_for = f"workers: {least - missing} of at least {least} are there (minReplicas)"
        elif not self._is_chief and since is not None:
            waits_for = "the chief"
        else:
            waits_for = "the next generation of workers"
        state = replace(self, waits_for=waits_for)
        actions = (Emit(Doing(f"waiting for {waits_for}")),) if waits_for != self.waits_for else ()
        if since is None or now - since < self.elastic.seconds:
            return state, actions
        if self.elastic.is_extra:
            why, code = "leaves its place in the queue", ExitCode.PREEMPTED
        else:
            why, code = "startingDeadlineSeconds", ExitCode.RETRYABLE
        failed = Failed(f"waited {self.elastic.seconds:.0f} s for {waits_for} ({why})", "", code)
        return replace(state, exit_code=code), (*actions, Emit(failed))

    def pause(self, now: float) -> float:
        """Returns how many seconds later `looked` must be called at the latest."""
        if self.phase is Phase.WAITS and self.kill_at is None:
            return min(self.silence.seconds, _WAITING_SECONDS)
        until = self.kill_at if self.kill_at is not None else self.heard + self.silence.seconds
        return max(0.0, min(until - now, max(0.1, self.silence.seconds / _LOOKS)))

    # The parts of the above

    @property
    def _is_told_to_stop(self) -> bool:
        return self.kill_at is not None

    @property
    def _is_chief(self) -> bool:
        return self.elastic is not None and self.elastic.role == "chief"

    def _ends_a_generation(self, code: int) -> bool:
        """Returns whether all tasks stop together, or another one was lost."""
        return self.elastic is not None and code in (ExitCode.RETRYABLE, ExitCode.PREEMPTED)

    def _exit_code(self, returncode: int) -> tuple[int, tuple[Action, ...]]:
        """Returns the exit code of a training process, and what is to be told of its end."""
        if returncode >= 0:
            return returncode, ()
        if self._is_told_to_stop:
            return ExitCode.PREEMPTED, ()
        if self.is_others_fault:
            return ExitCode.RETRYABLE, ()
        number = -returncode
        message = f"the training process was ended by signal {number} ({signal.strsignal(number)})"
        if number == signal.SIGKILL:
            message += "; if nobody sent it, the memory limit was reached: raise the memory in resources"
        return 128 + number, (Emit(Failed(message, traceback="", exit_code=128 + number)),)

    def _started(self, now: float) -> Step:
        """Starts a training process, or waits for the order to do so."""
        state = replace(
            self,
            phase=Phase.WAITS if self.is_member else Phase.ORDERED,
            silence=self.first,
            heard=now,
            is_overtaken=False,
            is_others_fault=False,
        )
        return state, (Start(None if self.is_member else {}),)

    def _begins(self, tf_config: Mapping[str, Any], now: float) -> Step:
        """Starts the training process for a generation."""
        if self.phase is not Phase.WAITS:
            return self, (ReportEnd(ExitCode.RETRYABLE),)  # the order was for a connection that is lost
        peers = {
            pod: address
            for role, pods in tf_config["pods"].items()
            for pod, address in zip(pods, tf_config["cluster"][role])
        }
        failed = self.failed_generations if set(peers) == set(self.peers) else 0
        state = replace(
            self, phase=Phase.ORDERED, peers=peers, failed_generations=failed, waits_for="", heard=now
        )
        return state, (Start({Env.TF_CONFIG: json.dumps(tf_config)}),)

    def _ends_for_others(self) -> Step:
        """Ends the training process because another task of its generation has failed."""
        if self.phase is Phase.WAITS:
            return self, ()
        return replace(self, is_others_fault=True), (Send(signal.SIGKILL),)

    def _left(self, *actions: Action) -> Step:
        """Leaves with the code of the training process."""
        if self.ended_with != ExitCode.RETRYABLE:
            actions += (Do.GIVE_BACK,)
        return replace(self, exit_code=self.ended_with), actions
