"""A process that watches a training process: it ends one that is silent for too long, and starts one that
has failed again.

TensorFlow waits for ever for a hung peer, inside an operation that holds Python's lock. No thread and no
signal handler of that process can end it; faulthandler can, but with exit code 1. So the process that the pod
started, a few MB of standard library, forks before TensorFlow is imported. Its child, the starter, starts the
training process: see `starter`. If the training process is silent for too long, the supervisor kills it and
leaves with the exit code that was agreed before. If the supervisor is killed, the others are killed too.

A training process that loses a peer, or is killed, is started again at once and in the same pod, with the
pod's address: see `restart_limit`. A Job would make another pod, after 10 s and more. A process that was
silent is not: its node may be the reason, and another pod may get another node.

In an elastic collective the chief's supervisor decides who trains together: see `elastic_generations`. There
the first process only says what this task runs, and each later one trains in one generation.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from worker.collective.elastic_rendezvous import Elastic, Member, Rendezvous
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import (
    Doing,
    Done,
    Failed,
    Notice,
    Restarted,
    emit,
)
from worker.contract.run_config import GRACE_SECONDS
from worker.parameter_server.worker_monitor import WorkerMonitor
from worker.peers import probes
from worker.process.lease import Holder, Lease
from worker.process.watch import Silence, Watch, overtaken
from worker.supervisor import starter
from worker.supervisor.orphans import adopt_orphans, end_children
from worker.supervisor.restart_limit import Restarts

_GRACE_MARGIN = 3.0
"""Seconds before the end of the pod's grace period at which the training process is killed, which saves its
position until then.
"""
_LOOKS = 10
"""Number of times within a silence at which the supervisor checks that it was not stopped itself."""
_OWN_SECONDS = 0.1
"""More than this process itself needs between two looks."""
_STACKS_SECONDS = 0.5
_PEERS_END_SECONDS = 5.0
"""Limit for the other tasks of a collective to notice that one was lost, which takes them 0.7 s."""
_PEERS_POLL_SECONDS = 0.05
_FAILED_GENERATIONS = 3
"""Limit for generations of the same tasks to fail, one after the other, before they have saved anything."""
_DONE_SECONDS = 10.0
"""Limit for the other tasks to hear that the run is over."""
_LEASE_SECONDS = 10.0
"""Limit for a renewal of the lease that is going on. A disk that hangs for longer will not be well soon."""


@dataclass(frozen=True)
class Work:
    """What the training process does.

    `train` returns its exit code. `preload` imports what `train` needs, once for all training processes; None
    if nothing may be imported before. `forks`: there may be several training processes. `again` is the
    command of a new Python that calls `serve`, for a starter that was lost; it is empty where there is none.
    `environment` is the one for it.
    """

    train: Callable[[Watch], int]
    preload: Callable[[], None] | None = None
    forks: bool = False
    again: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """`grace` is the pod's, in seconds. The training process is started again at most `restarts` times within
    ten minutes. In a `collective` no task can go on without the others.
    """

    grace: float = GRACE_SECONDS
    restarts: int = 0
    collective: bool = False


def supervise(
    work: Work,
    first: Silence,
    task: str,
    addresses: Mapping[str, str],
    limits: Limits | None = None,
    elastic: Elastic | None = None,
) -> NoReturn:
    """Does `work` in a child process under watch, and leaves with its exit code or the agreed one.

    `first` is valid until the child sends another Silence. `addresses` (pod name to `host:port`) are the
    peers that may cause a stall. With `elastic` a training process is started whenever the chief's supervisor
    says so. It forks, so it must be called while the process has one thread.
    """
    os._exit(_Supervisor(work, first, task, addresses, limits or Limits(), elastic).run())


def serve(work: Work, pipes: starter.Pipes, supervisor: int) -> NoReturn:
    """Is the starter of `supervisor`, in the Python of `work.again`."""
    os.set_blocking(pipes.signs, False)
    starter.serve(lambda signs: work.train(Watch(signs)), work.preload, pipes, supervisor, work.forks)


class _Starter:
    """The starter process, as the supervisor sees it.

    `process` is its process id, `child` that of the training process while there is one. `signs` and
    `reports` are the descriptors to read from.
    """

    def __init__(self, work: Work, *, forked: bool) -> None:
        """A forked one is forked from this process, which must have one thread; else a new Python is one."""
        orders, self._orders = os.pipe()
        self.reports, reports = os.pipe()
        self.signs, signs = os.pipe()
        theirs = starter.Pipes(orders, reports, signs)
        parent = os.getpid()
        if forked:
            self.process = os.fork()
            if self.process == 0:
                for descriptor in (self._orders, self.reports, self.signs):
                    os.close(descriptor)
                serve(work, theirs, parent)
        else:
            command = [*work.again, *map(str, theirs), str(parent)]
            # Popen would wait for its process, if it were not kept.
            self._popen = subprocess.Popen(command, pass_fds=theirs, env=dict(work.environment))
            self.process = self._popen.pid
        for descriptor in theirs:
            os.close(descriptor)
        os.set_blocking(self.signs, False)
        os.set_blocking(self.reports, False)
        self.child: int | None = None
        self.preloaded = False
        self._buffer = b""

    def start(self, environment: Mapping[str, str]) -> None:
        """Orders a training process, with further variables in its environment."""
        line = json.dumps(environment).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it has ended
            while line:
                line = line[os.write(self._orders, line) :]

    def hear(self) -> int | None:
        """Reads its reports. Returns the wait status of a training process that has ended."""
        *lines, self._buffer = (self._buffer + _read(self.reports)).split(b"\n")
        status = None
        for line in lines:
            report = json.loads(line)
            if "preloaded" in report:
                self.preloaded = True
                continue
            self.child = report.get("started")
            status = report.get("ended", status)
        return status

    def close(self) -> None:
        """Frees what is left of one that has ended."""
        for descriptor in (self._orders, self.reports, self.signs):
            os.close(descriptor)


class _Supervisor:
    def __init__(
        self,
        work: Work,
        first: Silence,
        task: str,
        addresses: Mapping[str, str],
        limits: Limits,
        elastic: Elastic | None,
    ) -> None:
        self._work = work
        self._first = self._silence = first
        self._task = task
        self._addresses = addresses
        """The other tasks; in an elastic collective all of the present generation."""
        self._limits = limits
        self._elastic = elastic
        self._identity: Mapping[str, Any] | None = None
        self._member: Member | None = None
        """Set from the introduction on."""
        self._rendezvous: Rendezvous | None = None
        self._failed_generations = 0
        self._waits = False
        """Whether there is no training process until the chief's supervisor orders one."""
        self._said = ""
        self._is_others_fault = False
        """Whether the training process is ended because another task of its generation has failed."""
        self._restarts = Restarts(limits.restarts)
        self._may_restart = True
        self._kill_at: float | None = None
        self._buffer = b""
        self._lease: Lease | None = None
        self._attendance = WorkerMonitor(lambda text: emit(task, Notice(text)))
        self._lost = False
        self._wake: int | None = None

    def run(self) -> int:
        adopt_orphans()
        self._starter = _Starter(self._work, forked=True)
        wakeup, signalled = os.pipe()
        os.set_blocking(signalled, False)
        os.set_blocking(wakeup, False)
        self._wake = signalled
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._terminate)
        self._starter.start({})
        heard = looked = time.monotonic()
        while True:
            if (code := self._obey()) is not None:
                return code
            status = self._ended()
            if status is not None:
                code = self._left(status)
                if self._goes_on(code):
                    heard = looked = time.monotonic()
                    continue
                if self._lease is not None and code != ExitCode.RETRYABLE:
                    self._lease.give_back()
                return code
            now = time.monotonic()
            # If this process was stopped (a frozen pod, a suspended machine), so was the child.
            heard += max(0.0, now - looked - _OWN_SECONDS)
            nothing_runs = self._starter.child is None
            if self._kill_at is not None and (now >= self._kill_at or nothing_runs):
                self._kill()
                return ExitCode.PREEMPTED
            if self._waits:
                heard = now
            if self._kill_at is None and now - heard >= self._silence.seconds:
                if (blocked := self._silent()) is not None:
                    return blocked
                heard = time.monotonic()
            until = self._kill_at if self._kill_at is not None else heard + self._silence.seconds
            looks = max(0.1, self._silence.seconds / _LOOKS)
            pause = max(0.0, min(until - now, 1.0 if self._waits else looks))
            watched = [self._starter.signs, self._starter.reports, wakeup]
            ready, _, _ = select.select(watched, [], [], pause)
            looked = time.monotonic()
            heard += max(0.0, looked - now - pause)
            if wakeup in ready:
                _read(wakeup)
            if self._starter.signs in ready:
                heard = looked
                self._hear()

    def _ended(self) -> int | None:
        """Returns the training process's wait status once it has ended. As process 1 of a container, this
        process also reaps orphans.
        """
        before = self._starter.child
        status = self._starter.hear()
        if self._starter.child not in (None, before) and self._kill_at is not None:
            self._send(signal.SIGTERM)  # the signal came before the process was there
        while True:
            try:
                process, reaped = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if process == self._starter.process:
                # With it the training process is killed, if it was not the same.
                self._starter.process = 0
                status = status if status is not None else reaped
            if process == 0:
                break
        if status is not None:
            self._starter.child = None
            self._hear()
        return status

    def _goes_on(self, code: int) -> bool:
        """Starts the training process again if it may be, or waits for the next generation. Returns whether
        it does.
        """
        if self._elastic is None:
            return self._starts_again(code)
        if self._member is None and code == ExitCode.DONE and self._identity is not None:
            self._take_part(self._elastic, self._identity)
            return True
        if self._member is not None:
            self._member.ended(code)
        if self._rendezvous is not None and code == ExitCode.DONE:
            self._rendezvous.finish(_DONE_SECONDS)
        if code not in (ExitCode.RETRYABLE, ExitCode.PREEMPTED):
            return self._starts_again(code)
        # Another task was lost, or all have stopped together.
        self._failed_generations += code == ExitCode.RETRYABLE
        if self._failed_generations > _FAILED_GENERATIONS or not self._may_start():
            return False
        self._start()
        return True

    def _starts_again(self, code: int) -> bool:
        """Starts the training process again if it may be, and returns whether it did."""
        if not (self._restarts.allowed(code) and self._may_start()):
            return False
        if self._limits.collective:
            self._await_peers_end()
        if self._is_told_to_stop():
            return False
        self._restarts.add(time.monotonic())
        emit(self._task, Restarted(code, self._restarts.count))
        self._start()
        return True

    def _may_start(self) -> bool:
        """Removes what the training process has left. Returns whether another one may be started."""
        if self._is_told_to_stop() or not self._may_restart:
            return False
        if not self._starter.process and not self._work.again:
            return False
        if self._lease is not None and not self._lease.stop(_LEASE_SECONDS):
            return False
        self._attendance.follow({})
        end_children(but=self._starter.process)
        return True

    def _start(self) -> None:
        """Starts a training process, or waits for the order to do so."""
        self._lease, self._lost, self._buffer, self._silence = None, False, b"", self._first
        self._is_others_fault = False
        if not self._starter.process:
            self._starter.close()
            self._starter = _Starter(self._work, forked=False)
        self._waits = self._member is not None
        if not self._waits:
            self._starter.start({})

    def _take_part(self, elastic: Elastic, identity: Mapping[str, Any]) -> None:
        """Joins the elastic collective: the task is ready for its first generation."""
        if elastic.role == "chief":
            try:
                self._rendezvous = Rendezvous(elastic, lambda content: emit(self._task, content))
            except OSError as error:
                self._kill()
                message = f"cannot listen on {elastic.own}: {error.strerror or error}"
                emit(self._task, Failed(message, "", ExitCode.RETRYABLE))
                os._exit(ExitCode.RETRYABLE)
        self._member = Member(elastic, identity, self._awake)
        self._start()

    def _awake(self) -> None:
        """Runs in other threads."""
        if self._wake is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b"x")

    def _obey(self) -> int | None:
        """Carries out what the chief's supervisor says. Returns the exit code if this task must end."""
        member, elastic = self._member, self._elastic
        if member is None or elastic is None:
            return None
        if self._waits and self._starter.preloaded and not member.is_ready:
            member.ready()
        with contextlib.suppress(queue.Empty):
            while True:
                message = member.heard.get_nowait()
                if "start" in message:
                    self._begin(member, message["start"])
                elif "stop" in message:
                    self._send(signal.SIGUSR2)
                elif "kill" in message:
                    self._end_generation()
                elif "refuse" in message:
                    return self._refused(message["refuse"])
                elif "done" in message and self._waits:
                    emit(self._task, Done())
                    return ExitCode.DONE
        return self._waited(member, elastic) if self._waits else None

    def _begin(self, member: Member, tf_config: Mapping[str, Any]) -> None:
        """Starts the training process for a generation."""
        if not self._waits:
            member.ended(ExitCode.RETRYABLE)  # the order was for a connection that is lost
            return
        there = {
            pod: address
            for role, pods in tf_config["pods"].items()
            for pod, address in zip(pods, tf_config["cluster"][role])
        }
        if set(there) != set(self._addresses):
            self._failed_generations = 0
        self._addresses = there
        self._waits, self._said = False, ""
        member.started()
        self._starter.start({Env.TF_CONFIG: json.dumps(tf_config)})

    def _refused(self, why: str) -> int:
        self._kill()
        message = f"this worker is not taken in: {why}; give it the chief's image and resources"
        emit(self._task, Failed(message, "", ExitCode.PROGRAM_ERROR))
        return ExitCode.PROGRAM_ERROR

    def _end_generation(self) -> None:
        """Ends the training process because another task of its generation has failed."""
        if not self._waits:
            self._is_others_fault = True
            self._send(signal.SIGKILL)

    def _waited(self, member: Member, elastic: Elastic) -> int | None:
        """Says what this task waits for. Returns the exit code once it has waited for too long."""
        chief, least = self._rendezvous, elastic.workers.min
        since = chief.idle_since if chief is not None else member.lost_since
        if chief is not None and chief.missing:
            waits = f"workers: {least - chief.missing} of at least {least} are there (minReplicas)"
        elif chief is None and since is not None:
            waits = "the chief"
        else:
            waits = "the next generation of workers"
        if waits != self._said:
            self._said = waits
            emit(self._task, Doing(f"waiting for {waits}"))
        if since is None or time.monotonic() - since < elastic.seconds:
            return None
        message = f"waited {elastic.seconds:.0f} s for {waits} (startingDeadlineSeconds)"
        emit(self._task, Failed(message, "", ExitCode.RETRYABLE))
        return ExitCode.RETRYABLE

    def _is_told_to_stop(self) -> bool:
        return self._kill_at is not None

    def _await_peers_end(self) -> None:
        """Waits until every other task's training process has ended, too: a collective cannot go on without
        this one. A new process would connect to the old ones, and fail with them.
        """
        deadline = time.monotonic() + _PEERS_END_SECONDS
        there = dict(self._addresses)
        while there and not self._is_told_to_stop() and time.monotonic() < deadline:
            there = {name: each for name, each in there.items() if probes.connects(each, 0.5)}
            time.sleep(_PEERS_POLL_SECONDS)

    def _hear(self) -> None:
        *lines, self._buffer = (self._buffer + _read(self._starter.signs)).split(b"\n")
        for line in lines:
            if not line:
                continue
            document = json.loads(line)
            if "lease" in document:
                self._keep(Lease.from_json(document["lease"]))
            elif "workers" in document:
                self._attendance.follow(document["workers"])
            elif "further" in document:
                self._failed_generations = 0
                self._restarts.came_further(time.monotonic())
            elif "stepped" in document:
                if self._member is not None:
                    self._member.stepped()
            elif "identity" in document:
                self._identity = document["identity"]
            elif "again" in document:
                self._may_restart = document["again"]
            elif not self._lost:
                self._silence = Silence.from_json(document)

    def _keep(self, lease: Lease) -> None:
        def overtaken_by(other: Holder) -> None:
            """Runs in the lease's thread."""
            if self._lease is lease and self._wake is not None:
                self._lost = True
                self._silence = overtaken(other)
                os.write(self._wake, b"x")

        self._lease = lease
        lease.keep(overtaken_by)

    def _silent(self) -> int | None:
        """Ends a training process that is silent. Returns this task's exit code; None in an elastic
        collective where the process only waits for one that hangs elsewhere.
        """
        silence = self._silence
        content = silence.content
        if silence.blame:
            found = probes.faults(self._addresses)
            if self._member is not None and found and self._task not in found:
                self._end_generation()
                return None
            if found and isinstance(content, Failed):
                no_answer = f"; no answer from {probes.described(found)}"
                content = Failed(content.message + no_answer, content.traceback, content.exit_code)
            self._show_stacks()
        self._kill()
        emit(self._task, content)
        return silence.exit_code

    def _show_stacks(self) -> None:
        """Prints all stacks to standard error: only they show where a process hangs."""
        self._send(signal.SIGUSR1)
        time.sleep(_STACKS_SECONDS)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._kill_at = self._kill_at or time.monotonic() + max(0.0, self._limits.grace - _GRACE_MARGIN)
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self._starter.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._starter.child, number)

    def _kill(self) -> None:
        self._send(signal.SIGKILL)
        if self._starter.process:
            os.kill(self._starter.process, signal.SIGKILL)  # its number is not used again before it is reaped
            os.waitpid(self._starter.process, 0)
        end_children()

    def _left(self, status: int) -> int:
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code
        if self._kill_at is not None:
            return ExitCode.PREEMPTED
        if self._is_others_fault:
            return ExitCode.RETRYABLE
        message = f"the training process was ended by signal {-code} ({signal.strsignal(-code)})"
        if -code == signal.SIGKILL:
            message += "; if nobody sent it, the memory limit was reached: raise resources.limits.memory"
        emit(self._task, Failed(message, traceback="", exit_code=128 - code))
        return 128 - code


def _read(descriptor: int) -> bytes:
    """Returns all that is there now to read."""
    data = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(descriptor, 65536):
            data += part
    return data
