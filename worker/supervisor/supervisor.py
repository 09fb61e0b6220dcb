"""A process that watches a training process: it ends one that is silent for too long, and starts one that
has failed again.

TensorFlow waits for ever for a hung peer, inside an operation that holds Python's lock. No thread and no
signal handler of that process can end it; faulthandler can, but with exit code 1. So the process that the pod
started, a few MB of standard library, forks before TensorFlow is imported. Its child, the starter, starts the
training process: see `starter`. If the training process is silent for too long, the supervisor kills it and
leaves with the exit code that was agreed before. If the supervisor is killed, the others are killed too.

What it does and when is decided in `state`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from worker.collective.elastic_rendezvous import Elastic, Member, Rendezvous
from worker.contract.environment import Env
from worker.contract.records import Content, Notice, emit
from worker.parameter_server.worker_monitor import WorkerMonitor
from worker.peers import probes
from worker.process import processors
from worker.process.lease import Holder, Lease
from worker.process.watch import Silence
from worker.supervisor import endpoint, gpu_use, memory_growth
from worker.supervisor.metrics import Metrics
from worker.supervisor.orders import Orders
from worker.supervisor.orphans import adopt_orphans, end_children
from worker.supervisor.send_queues import SendQueues
from worker.supervisor.spent_windows import SpentWindows
from worker.supervisor.starter import Work
from worker.supervisor.starter_client import StarterClient, read
from worker.supervisor.state import Action, Do, Emit, Limits, Phase, ReportEnd, Send, Start, State, Step
from worker.tracking.tracker import Tracker

_OWN_SECONDS = 0.1
"""More than this process itself needs between two looks."""
_STACKS_SECONDS = 0.5
_PEERS_END_SECONDS = 10.0
"""Limit for the other tasks of a collective to notice that one was lost. It takes them 0.7 s, and 7 s where
only its missing heartbeats tell; one that is back before is taken for the lost one, and all start twice.
"""
_PEERS_POLL_SECONDS = 0.05
_DONE_SECONDS = 10.0
"""Limit for the other tasks to hear that the run is over."""
_LEASE_SECONDS = 10.0
"""Limit for a renewal of the lease that is going on. A disk that hangs for longer will not be well soon."""


def supervise(
    work: Work,
    first: Silence,
    task: str,
    addresses: Mapping[str, str],
    limits: Limits | None = None,
    elastic: Elastic | None = None,
    metrics: Metrics | None = None,
    directory: str | None = None,
    tracker: Tracker | None = None,
) -> NoReturn:
    """Does `work` in a child process under watch, and leaves with its exit code or the agreed one.

    `first` is valid until the child sends another Silence. `addresses` (pod name to `host:port`) are the
    peers that may cause a stall. With `elastic` a training process is started whenever the chief's supervisor
    says so. It serves `metrics` where `Env.METRICS` says, and takes orders in the task's own `directory`. The
    `tracker` follows the records. It forks, so it must be called while the process has one thread.
    """
    state = State.ordered(task, first, addresses, limits or Limits(), elastic, time.monotonic())
    code = _Supervisor(work, state, metrics or Metrics({}), directory, tracker).run()
    if tracker is not None:
        tracker.finish(code)
    os._exit(code)


class _Supervisor:
    """Tells `State` what happens, and carries out what follows."""

    def __init__(
        self,
        work: Work,
        state: State,
        metrics: Metrics,
        directory: str | None,
        tracker: Tracker | None,
    ) -> None:
        self._work = work
        self._state = state
        self._metrics = metrics
        self._windows = SpentWindows()
        self._queues = SendQueues(state.peers)
        metrics.sending = self._queues.seconds
        self._tracker = tracker
        self._lease: Lease | None = None
        self._identity: Mapping[str, Any] = {}
        self._member: Member | None = None
        self._rendezvous: Rendezvous | None = None
        self._orders = Orders(state.task, directory, lambda: self._starter)
        self._monitor = WorkerMonitor(lambda sentence: self._emit(Notice(sentence)), metrics.attend)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What signal handlers and other threads want done in this one."""
        self._do: Mapping[Do, Callable[[], None]] = {
            Do.KILL: lambda: self._starter.kill(),
            Do.SHOW_STACKS: self._show_stacks,
            Do.PROBE: self._probe,
            Do.CLEAR: self._clear,
            Do.GIVE_BACK: self._give_back,
            Do.TAKE_PART: self._take_part,
            Do.FINISH: self._finish,
        }

    def run(self) -> int:
        """Returns the exit code."""
        adopt_orphans()
        self._starter = StarterClient(self._work, forked=True)
        self._woken, self._wakeup = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        self._starter.start({})
        self._orders.listen()
        self._queues.follow()
        gpu_use.follow(self._emit)
        memory_growth.follow(lambda sentence: self._emit(Notice(sentence)))
        endpoint.serve(os.environ.get(Env.METRICS), self._metrics, self._emit)
        if self._tracker is not None:
            self._tracker.follow(self._emit)
        looked = time.monotonic()
        self._state = self._state.signed(looked)
        while self._state.exit_code is None:
            self._hear_others()
            if self._state.exit_code is None:
                looked = time.monotonic() if self._hear_starter() else self._watch(looked)
        return self._state.exit_code

    # What happens

    def _hear_others(self) -> None:
        """Hears signals, the lease's thread, and the chief's supervisor."""
        self._empty_inbox()
        if self._member is None:
            return
        waits = self._state.phase is Phase.WAITS
        if waits and self._starter.preloaded and not self._member.is_ready:
            self._member.ready()
        with contextlib.suppress(queue.Empty):
            while self._state.exit_code is None:
                order = self._member.heard.get_nowait()
                self._step(self._state.given_order(order, time.monotonic()))
        if self._state.exit_code is None:
            chief = self._rendezvous
            since = self._member.lost_since if chief is None else chief.idle_since
            missing = 0 if chief is None else chief.missing
            self._step(self._state.waited(since, missing, time.monotonic()))

    def _hear_starter(self) -> bool:
        """Hears whether the training process has begun or ended. Returns whether it has ended."""
        before = self._starter.child
        status = self._starter.ended()
        self._metrics.process = self._starter.child
        if self._starter.child not in (None, before):
            self._windows = SpentWindows()
            self._step(self._state.began())
        if status is None:
            return False
        self._hear_child(time.monotonic())
        self._empty_inbox()  # it may have got the same SIGTERM
        self._step(self._state.ended(os.waitstatus_to_exitcode(status), time.monotonic()))
        return True

    def _watch(self, looked: float) -> float:
        """Waits until something happens, after this process has `looked` at that time. Returns the time."""
        now = time.monotonic()
        self._state = self._state.stopped_for(max(0.0, now - looked - _OWN_SECONDS))
        self._step(self._state.looked(now))
        if self._state.exit_code is not None:
            return now
        pause = self._state.pause(now)
        ready, _, _ = select.select([self._starter.signs, self._starter.reports, self._woken], [], [], pause)
        looked = time.monotonic()
        self._state = self._state.stopped_for(max(0.0, looked - now - pause))
        if self._woken in ready:
            read(self._woken)
        if self._starter.signs in ready:
            self._hear_child(looked)
        return looked

    def _hear_child(self, now: float) -> None:
        """Reads what the training process has said: see `Watch`. Most of it is a sign of life, too."""
        for document in self._starter.documents():
            if "tf-launcher" in document:
                self._metrics.read(document)
                if self._tracker is not None:
                    self._tracker.read(document)
                continue
            self._state = self._state.signed(now)
            if not document:
                continue
            if "spent" in document:
                self._metrics.spend(document["spent"])
                throttled, sending = processors.throttled() or 0.0, self._queues.seconds()
                spent = self._windows.spend(document["spent"], throttled, sending)
                if spent is not None:
                    self._emit(spent)
            elif "lease" in document:
                self._keep(Lease.from_json(document["lease"]))
            elif "workers" in document:
                self._monitor.follow(document["workers"])
            elif "further" in document:
                self._state = self._state.came_further(time.monotonic())
            elif "stepped" in document:
                if self._member is not None:
                    self._member.stepped()
            elif "identity" in document:
                self._identity = document["identity"]
                self._state = self._state.introduced()
            elif "trains" in document:
                self._orders.trains = document["trains"]
            elif "profiled" in document:
                self._orders.profiled.put(document["profiled"])
            elif "again" in document:
                self._state = self._state.restarts_if(document["again"])
            else:
                self._state = self._state.expects(Silence.from_json(document))

    def _emit(self, content: Content) -> None:
        """Also runs in other threads."""
        emit(self._state.task, content)
        self._metrics.hear(content)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._inbox.put(lambda: self._step(self._state.terminated(now)))

    def _keep(self, lease: Lease) -> None:
        """Renews `lease` from now on."""

        def lose(other: Holder) -> None:
            if self._lease is lease:
                self._state = self._state.lost_lease(other)

        def overtaken(other: Holder) -> None:
            """Runs in the lease's thread."""
            self._inbox.put(lambda: lose(other))
            self._wake()

        self._lease = lease
        lease.keep(overtaken)

    def _wake(self) -> None:
        """Runs in other threads."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup, b"x")

    def _empty_inbox(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._inbox.get_nowait()()

    # What follows

    def _step(self, step: Step) -> None:
        self._state, actions = step
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Emit):
            self._emit(action.content)
        elif isinstance(action, Send):
            self._starter.send(action.number)
        elif isinstance(action, Start):
            self._start(action.environment)
        elif isinstance(action, ReportEnd):
            if self._member is not None:
                self._member.ended(action.code)
        else:
            self._do[action]()

    def _start(self, environment: Mapping[str, str] | None) -> None:
        self._lease = None
        self._orders.trains = False
        if not self._starter.process:
            self._starter.close()
            self._starter = StarterClient(self._work, forked=False)
        if environment is not None:
            if self._member is not None:
                self._member.started()
            self._starter.start(environment)

    def _show_stacks(self) -> None:
        sys.stderr.write(self._starter.stacks(_STACKS_SECONDS))
        sys.stderr.flush()

    def _probe(self) -> None:
        faults = probes.faults(self._state.peers)
        self._step(self._state.probed(faults, time.monotonic()))

    def _clear(self) -> None:
        can_start = bool(self._starter.process or self._work.again)
        can_start = can_start and (self._lease is None or self._lease.stop(_LEASE_SECONDS))
        if can_start:
            self._monitor.follow({})
            end_children(but=self._starter.process)
            if self._state.limits.collective:
                self._await_peers_end()
        self._empty_inbox()
        self._step(self._state.cleared(can_start, time.monotonic()))

    def _await_peers_end(self) -> None:
        """Waits until every other task's training process has ended, too: a collective cannot go on without
        this one. A new process would connect to the old ones, and fail with them.
        """
        deadline = time.monotonic() + _PEERS_END_SECONDS
        there = dict(self._state.peers)
        while there and self._state.kill_at is None and time.monotonic() < deadline:
            there = {name: each for name, each in there.items() if probes.connects(each, 0.5)}
            time.sleep(_PEERS_POLL_SECONDS)
            self._empty_inbox()

    def _give_back(self) -> None:
        if self._lease is not None:
            self._lease.give_back()

    def _take_part(self) -> None:
        elastic = self._state.elastic
        if elastic is None:
            return
        if elastic.role == "chief":
            try:
                self._rendezvous = Rendezvous(elastic, self._emit)
            except OSError as error:
                self._step(self._state.cannot_listen(error.strerror or str(error)))
                return
        self._member = Member(elastic, self._identity, self._wake)

    def _finish(self) -> None:
        if self._rendezvous is not None:
            self._rendezvous.finish(_DONE_SECONDS)
