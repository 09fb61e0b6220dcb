"""The workers of a ParameterServer run that take steps: who is lost is left out, who answers is taken in.

A thread looks at the workers that are away, and changes the cluster when one of them answers. Meanwhile the
other workers continue. TensorFlow opens new connections then, to where the tasks are now: a new pod has a new
address.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from worker.contract.exit_codes import ExitCode
from worker.contract.records import MembershipRecord
from worker.failures import Failure
from worker.parameter_server.admission import Admission
from worker.peers import connect_attempts, probes
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import connections
from worker.tf_compat.coordinator import coordinate

_ROUND_SECONDS = 0.3
_PROBES_PER_SECOND = 200.0
"""Upper limit: a run may have a thousand workers that are not there."""
_PROBES_AT_A_TIME = 64
_CLOSING_SECONDS = 10.0
_CONNECT_SECONDS = 4.0
"""Limit for a new connection to a worker to which a probe could make none: a Job makes another pod after 10 s
at the earliest.
"""
_POD_ENDS_SECONDS = 3.0
"""A pod whose only process has ended is gone within about a second."""


class Membership:
    """Connects to the ps of `task.cluster` and to its workers but the `absent` ones, by the strategy that
    `build` makes. From then on it follows who is there.

    Changes are made while the thread that calls this waits for steps, in the functions of `tf_compat`.
    `failed` is called with an error before the training gets it. In an elastic run each change is reported.
    Raises Failure where too few workers can be used.
    """

    def __init__(
        self,
        task: Task,
        absent: Collection[int],
        build: Callable[[], Any],
        reporter: Reporter,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._addresses = dict(task.cluster.get("worker", {}))
        self._servers = {task.pod("ps", index): place for index, place in task.cluster.get("ps", {}).items()}
        self._name = {worker: task.pod("worker", worker) for worker in self._addresses}
        self._stall_seconds = task.config.stall_seconds
        self._failed = failed
        self._reporter = reporter if task.elastic is not None else None
        self._members = set(self._addresses) - set(absent)
        self._reported: set[int] = set()
        self._lost_at: dict[int, float] = {}
        self._postponed_since: float | None = None
        self._refused_since: dict[int, float] = {}
        self._gone: set[int] = set()
        """Members whose pods are gone, and whose connections are known to fail."""
        self._connections = threading.Lock()
        self._probing: dict[int, concurrent.futures.Future[str | None]] = {}
        self._is_exact = False
        self._closing = threading.Event()
        self._admission = Admission(task, reporter)
        with connections.limited_to(lambda: self._members, self._connected, probes.located):
            self.strategy = build()
        self._absences = coordinate(self.strategy, set(self._addresses) - self._members)
        self._report(self._members, "they answered")
        connections.use_alone(True)
        self._thread = threading.Thread(target=self._follow, name="membership", daemon=True)
        self._thread.start()

    def count(self) -> int:
        """Returns how many workers take steps now, or 1 where all are lost for the moment."""
        return max(1, len(self._members - self._absences.workers()))

    def keep_exact(self) -> None:
        """From now on the only worker of a run may not be lost: which of its steps reached the ps is not
        known then, so the training goes on from its newest copy. With several workers, whose steps have no
        order, a lost one's steps are done by the others, one perhaps twice.
        """
        self._is_exact = len(self._addresses) == 1

    def close(self, seconds: float) -> set[int]:
        """Ends the changes. Returns the workers that are there, or were until `seconds` ago."""
        self._closing.set()
        connections.use_alone(False)
        self._thread.join(_CLOSING_SECONDS)
        now = time.monotonic()
        return self._members | {worker for worker, at in self._lost_at.items() if now - at < seconds}

    def _connected(self) -> None:
        """Runs when this process has just connected, before the strategy looks at its devices."""
        refused = self._admission.check(self._members)
        if refused:
            self._members -= refused
            self._admission.check_enough(self._members)
            connections.connect(self._members)

    def _follow(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(_PROBES_AT_A_TIME, "membership") as pool:
            while not self._closing.is_set():
                away = self._absences.workers()
                if away and self._is_exact:
                    self._fail(
                        f"{self._name[min(away)]} was lost, the only worker: which of its steps have been "
                        "done is not known"
                    )
                    return
                faults = self._probed(away, pool)
                lost = {worker: reason for worker, reason in faults.items() if reason}
                self._note_lost(lost)
                answering = set(faults) - set(lost) - self._admission.refused
                # A lost worker leaves the cluster: its connection would be tried again ever less often.
                if not (answering or self._members & (self._refusing(lost) | self._gone)):
                    self._postponed_since = None
                elif self._connections.acquire(blocking=False):
                    self._change(answering, away)
                    self._connections.release()
                self._closing.wait(max(_ROUND_SECONDS, len(away) / _PROBES_PER_SECOND))

    def _refusing(self, lost: Mapping[int, str]) -> set[int]:
        """Returns the workers whose pods are still there a while after the process has ended."""
        now = time.monotonic()
        for worker, reason in lost.items():
            if reason == probes.REFUSED:
                self._refused_since.setdefault(worker, now)
            else:
                self._refused_since.pop(worker, None)
        return {worker for worker in lost if now - self._refused_since.get(worker, now) > _POD_ENDS_SECONDS}

    def _probed(self, away: set[int], pool: concurrent.futures.Executor) -> dict[int, str | None]:
        """Returns the `fault` of some workers that are away. It waits for none: a probe may take seconds, and
        other workers come meanwhile.
        """
        for worker in away - set(self._probing):
            self._probing[worker] = pool.submit(self._fault, worker)
        done = {worker: probe for worker, probe in self._probing.items() if probe.done()}
        for worker in done:
            del self._probing[worker]
        return {worker: probe.result() for worker, probe in done.items() if worker in away}

    def _fault(self, worker: int) -> str | None:
        """Returns why the worker cannot be used, None where it, or another one in its place, answers. Runs in
        a thread of its own: where its pod is gone it waits until that is known of the connection, too.
        """
        there = connections.place(worker) if worker in self._members - self._gone else None
        if there is not None and probes.absence(there) not in (None, probes.REFUSED):
            with self._connections, connect_attempts.limited(there, _CONNECT_SECONDS):
                if not connections.answers(worker):
                    self._gone.add(worker)
        return probes.fault(self._addresses[worker])

    def _note_lost(self, faults: Mapping[int, str]) -> None:
        now = time.monotonic()
        for worker in faults:
            if worker in self._members:
                self._lost_at[worker] = now
            self._admission.refused.discard(worker)  # another one may come in its place
        lost = {self._name[worker]: reason for worker, reason in faults.items() if worker in self._reported}
        if lost:
            self._report(self._reported - set(faults), f"no answer from {probes.described(lost)}")

    def _change(self, answering: set[int], away: set[int]) -> None:
        """Makes `answering` members, in the place of those that are `away`."""
        others = {self._name[worker]: worker for worker in self._members - away}
        addresses = {name: self._addresses[worker] for name, worker in others.items()}
        faults = probes.faults({**addresses, **self._servers})
        # TensorFlow would wait for these, and nobody could be taken in meanwhile.
        in_the_way = {
            name: reason
            for name, reason in faults.items()
            if reason == probes.SILENT or name in self._servers
        }
        if in_the_way:
            self._postpone(probes.described(in_the_way))
            return
        members = {worker for name, worker in others.items() if name not in faults} | answering
        try:
            refused = self._connect(members, answering)
        except tf.errors.OpError as error:
            # One was lost at this very moment. The next round looks again.
            self._postpone(str(error).partition("\n")[0])
            return
        self._postponed_since = None
        self._members = members - refused
        self._gone -= away
        joined = answering - refused
        for worker in joined:
            self._lost_at.pop(worker, None)
            self._refused_since.pop(worker, None)
        self._absences.end(joined)
        if joined - self._reported:
            names = ", ".join(sorted(self._name[worker] for worker in joined - self._reported))
            self._report(self._reported | joined, f"{names} answered")

    def _connect(self, members: set[int], new: set[int]) -> set[int]:
        """Connects to `members`. Returns those of the `new` ones that are not accepted."""
        reason = f"a worker could not be taken in within {self._stall_seconds} s: one was lost meanwhile"
        limit = threading.Timer(self._stall_seconds, self._fail, [reason])
        limit.daemon = True
        limit.start()
        try:
            connections.connect(members)
            refused = self._admission.check(new) if new else set()
            if refused:
                connections.connect(members - refused)
            return refused
        finally:
            limit.cancel()

    def _postpone(self, reason: str) -> None:
        now = time.monotonic()
        self._postponed_since = self._postponed_since or now
        if now - self._postponed_since > self._stall_seconds:
            self._postponed_since = None
            self._fail(f"no worker could be taken in for {self._stall_seconds} s because of {reason}")

    def _fail(self, reason: str) -> None:
        error = Failure(reason, ExitCode.RETRYABLE)
        self._failed(error)
        self._absences.fail(error)

    def _report(self, workers: set[int], reason: str) -> None:
        before, self._reported = self._reported, set(workers)
        if self._reporter is not None and before != workers:
            joined, left = sorted(workers - before), sorted(before - workers)
            self._reporter.emit(MembershipRecord(sorted(workers), joined, left, reason, None))
