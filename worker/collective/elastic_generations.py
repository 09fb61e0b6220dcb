"""Decides who trains together in an elastic collective, and when. Pure: the caller passes events and times.

A collective cannot gain or lose a task while it trains. So it trains in generations: all training processes
end, and new ones start with the tasks that are there then. `Generations` belongs to the chief's supervisor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from worker.contract.exit_codes import ExitCode
from worker.peers.elastic_identity import Identity, difference

SETTLE_SECONDS = 2.0
"""From a change of the members to a generation with them: others may be about to come."""
END_SECONDS = 10.0
"""Limit for the training processes of a generation to end after one of them, and then for their
supervisors to end them.
"""
LOST_SECONDS = 1.0
"""The same for the workers after one was lost. They have nothing to save, and some would notice the loss only
by missing heartbeats, after 7 s.
"""
BEGIN_SECONDS = 3.0
"""The same before the first step: processes that wait for one another do not notice that one is lost."""
READY_SECONDS = 30.0
"""Limit for a member to be ready for the next generation: it may have to import TensorFlow again."""


class Order(NamedTuple):
    """What the chief's supervisor tells a member, as a message.

    `{"start": TF_CONFIG}` starts a training process, with the members' pod names as "pods" beside the
    cluster. `{"stop": 1}` has all stop after the same step, `{"kill": 1}` ends the training process.
    `{"done": 1}` says that the run is over, `{"refuse": WHY}` that the member does not fit. `{"drop": 1}` is
    not sent: the member does not react, and its connection is closed.
    """

    name: str
    message: Mapping[str, Any]


@dataclass
class _Member:
    role: str
    index: int
    host: str
    identity: Identity | None
    port: int | None = None
    """The port of its next training process; None unless it is ready for one."""
    runs: bool = False
    """Whether it trains in the present generation."""
    strays: bool = False
    """Whether it has a training process of a generation that this chief does not know."""


class Generations:
    """At least `least` workers and the chief train together. `most` is the greatest number of workers. Tasks
    that stop in order have `stop_seconds`.
    """

    def __init__(self, least: int, most: int, stop_seconds: float, now: float) -> None:
        self.number = -1
        """The present generation's."""
        self.workers: tuple[int, ...] = ()
        """The indexes of its workers."""
        self.idle_since: float | None = now
        """None while a generation trains."""
        self.is_done = False
        """Whether the chief has trained to the end."""
        self._least = least
        self._most = most
        self._stop_seconds = stop_seconds
        self._members: dict[str, _Member] = {}
        self._trains: tuple[str, ...] = ()
        self._changed = now
        self._ending: float | None = None
        """When the first process of the generation has ended."""
        self._in_order = False
        self._lost = False
        """Whether it has ended because a task was lost."""
        self._stop_sent = False
        self._steps = False

    @property
    def count(self) -> int:
        """Returns how many members there are."""
        return len(self._members)

    def joined(
        self,
        name: str,
        role: str,
        index: int,
        host: str,
        identity: Identity | None,
        now: float,
        strays: bool = False,
    ) -> None:
        """A task has connected. With `strays` it still has a training process."""
        self._members[name] = _Member(role, index, host, identity, strays=strays)
        self._changed = now

    def ready(self, name: str, port: int) -> None:
        """A task has no training process, and has a free port for the next."""
        self._members[name].port = port

    def stepped(self, name: str) -> None:
        """The training process of a task has taken its first step. Before, it could not stop in order."""
        self._steps = self._steps or name in self._trains

    def ended(self, name: str, code: int, now: float) -> None:
        """The training process of a task has ended."""
        member = self._members[name]
        if not member.runs:
            return
        member.runs = False
        if member.role == "chief" and code == ExitCode.DONE:
            self.is_done = True
        if self._ending is None:
            self._ending, self._in_order = now, code == ExitCode.PREEMPTED and self._steps
            self._lost = code not in (ExitCode.DONE, ExitCode.PREEMPTED, ExitCode.PROGRAM_ERROR)

    def gone(self, name: str, now: float) -> None:
        """A task's connection is lost."""
        member = self._members.pop(name, None)
        if member is None:
            return
        self._changed = now
        if member.runs and (self._ending is None or self._in_order):
            self._ending, self._in_order, self._lost = now, False, True

    def look(self, now: float) -> Iterator[Order]:
        """Yields what to tell the members. The caller calls it again after each event, and often."""
        for name, member in self._members.items():
            if member.strays:
                member.strays = False
                yield Order(name, {"kill": 1})
        yield from self._refused()
        running = [name for name in self._trains if name in self._members and self._members[name].runs]
        others = [name for name, member in self._members.items() if member.port is not None]
        if self.is_done:
            yield from (Order(name, {"done": 1}) for name in others)
        elif not running:
            if self.idle_since is None:
                self.idle_since = now
            if self._may_start(now):
                yield from self._start()
        elif self._ending is not None:
            for name in running:
                late = now - self._ending - self._limit(self._members[name].role)
                if late >= 0:
                    yield Order(name, {"drop" if late >= END_SECONDS else "kill": 1})
        elif others and self._steps and not self._stop_sent and now - self._changed >= SETTLE_SECONDS:
            self._stop_sent = True
            yield Order(self._trains[0], {"stop": 1})

    def _limit(self, role: str) -> float:
        """Returns the seconds in which the training processes of a role may end by themselves."""
        if not self._steps:
            return BEGIN_SECONDS
        if self._in_order:
            return self._stop_seconds
        return LOST_SECONDS if self._lost and role == "worker" else END_SECONDS

    def missing(self) -> int:
        """Returns how many workers lack for a generation."""
        return max(0, self._least - len(self._ready("worker")))

    def _refused(self) -> Iterator[Order]:
        """Yields the refusal of each worker that does not fit the chief."""
        chiefs = [member.identity for member in self._members.values() if member.role == "chief"]
        if not chiefs or chiefs[0] is None:
            return
        for name, member in list(self._members.items()):
            if why := difference(member.identity, chiefs[0]):
                del self._members[name]
                yield Order(name, {"refuse": why})

    def _ready(self, role: str) -> list[str]:
        members = [
            (member.index, name)
            for name, member in self._members.items()
            if member.role == role and member.port is not None
        ]
        return [name for _, name in sorted(members)]

    def _may_start(self, now: float) -> bool:
        workers = len(self._ready("worker"))
        if not self._ready("chief") or workers < self._least:
            return False
        idle = now - (self.idle_since if self.idle_since is not None else now)
        all_ready = all(member.port is not None for member in self._members.values())
        if not all_ready and idle < READY_SECONDS:
            return False
        return workers >= self._most or now - self._changed >= SETTLE_SECONDS

    def _start(self) -> Iterator[Order]:
        chief, workers = self._ready("chief"), self._ready("worker")
        self._trains = (*chief, *workers)
        self.number += 1
        self.workers = tuple(self._members[name].index for name in workers)
        self.idle_since = self._ending = None
        self._stop_sent = self._steps = self._in_order = self._lost = False
        cluster = {"chief": self._addresses(chief), "worker": self._addresses(workers)}
        pods = {"chief": chief, "worker": workers}
        for role, names in pods.items():
            for rank, name in enumerate(names):
                member = self._members[name]
                member.port, member.runs = None, True
                task = {"type": role, "index": rank}
                yield Order(name, {"start": {"cluster": cluster, "task": task, "pods": pods}})

    def _addresses(self, names: Sequence[str]) -> list[str]:
        return [f"{self._members[name].host}:{self._members[name].port}" for name in names]
