"""The connections between the supervisors of an elastic collective. Each task's supervisor holds one to the
chief's, which is its presence. Messages are JSON lines.

To the chief: first `{"name", "role", "index", "host", "identity", "runs"}`, then `{"ready": PORT}`,
`{"stepped": 1}` and `{"ended": CODE}`. From the chief: see `generations.Order`. The chief's supervisor
listens on the task's own port. A training process takes any free port, a new one in each generation: the one
before may still have its own.

Standard library only, and in threads: the supervisor itself waits for its training process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from worker.collective.elastic_generations import Generations, Order
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Content, MembershipRecord, Notice
from worker.contract.run_config import ElasticWorkers
from worker.peers import probes
from worker.peers.elastic_identity import Identity

_LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 0.3
_CONNECT_SECONDS = 5.0
_LINE_BYTES = 1 << 16
_BACKLOG = 128
_PROBE_SECONDS = 2
"""An idle connection is probed this often, and is lost after `_LOST_AFTER` probes without an answer."""
_LOST_AFTER = 5


@dataclass(frozen=True)
class Elastic:
    """What the supervisor of a task of an elastic collective knows: its pod's name, `role` and `index`, its
    own `address` and that of its `chief`. It waits for its chief, and the chief for the least number of
    workers, at most `seconds`. Tasks that stop in order have `stop_seconds`. For `is_extra` see
    `peers.admitted_alone`.
    """

    name: str
    role: str
    index: int
    address: str
    chief: str
    workers: ElasticWorkers
    seconds: float
    stop_seconds: float
    is_extra: bool = False


class Member:
    """A task's connection to the chief's supervisor, which is made again whenever it is lost.

    `heard` has the chief's messages, and `wake` is called for each. `lost_since` is when the connection was
    lost, None while there is one.
    """

    def __init__(self, elastic: Elastic, identity: Mapping[str, Any], wake: Callable[[], None]) -> None:
        self.heard: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self.lost_since: float | None = time.monotonic()
        self.is_ready = False
        """Whether it has said so, and no order has come since."""
        host, _ = probes.split(elastic.address)
        self._hello = {
            "name": elastic.name,
            "role": elastic.role,
            "index": elastic.index,
            "host": host,
            "identity": identity,
        }
        self._chief = elastic.chief
        self._wake = wake
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._runs = False
        threading.Thread(target=self._follow, name="rendezvous", daemon=True).start()

    def ready(self) -> None:
        """Says that this task can start a training process."""
        with self._lock:
            self.is_ready, self._runs = True, False
            self._say_ready()

    def started(self) -> None:
        """Notes that the order has come."""
        with self._lock:
            self.is_ready, self._runs = False, True

    def stepped(self) -> None:
        """Says that the training process has taken its first step."""
        with self._lock:
            self._send({"stepped": 1})

    def ended(self, code: int) -> None:
        """Says that the training process has ended."""
        with self._lock:
            self._runs = False
            self._send({"ended": code})

    def _say_ready(self) -> None:
        with contextlib.closing(socket.create_server(("", 0))) as free:
            self._send({"ready": free.getsockname()[1]})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _follow(self) -> None:
        while True:
            connection = probes.connect(self._chief, _CONNECT_SECONDS)
            if isinstance(connection, socket.socket):
                with contextlib.suppress(OSError, ValueError), connection:
                    self._listen(connection)
            with self._lock:
                self._connection = None
            if self.lost_since is None:
                self.lost_since = time.monotonic()
            time.sleep(_AGAIN_SECONDS)

    def _listen(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        _keep_alive(connection)
        with self._lock:
            self._connection = connection
            self._send({**self._hello, "runs": self._runs})
            if self.is_ready:
                self._say_ready()
        for line in connection.makefile("rb"):
            self.lost_since = None
            self.heard.put(json.loads(line))
            self._wake()


class Rendezvous:
    """The chief's side: it accepts the members' connections, and carries out what `Generations` says.

    `say` gets a record for each generation, and for each member that is refused. `idle_since` is the time
    since which no generation trains, None while one does; then `missing` workers lack for one.
    """

    def __init__(self, elastic: Elastic, say: Callable[[Content], None]) -> None:
        """Raises OSError where the port is taken."""
        now = time.monotonic()
        self.idle_since: float | None = now
        self.missing = elastic.workers.min
        self._generations = Generations(elastic.workers.min, elastic.workers.max, elastic.stop_seconds, now)
        self._say = say
        self._before: tuple[int, ...] = ()
        self._names: dict[socket.socket, str] = {}
        self._rest: dict[socket.socket, bytes] = {}
        self._left = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("", probes.split(elastic.address)[1]), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="rendezvous", daemon=True).start()

    def finish(self, seconds: float) -> None:
        """Waits at the run's end, for at most `seconds`, until the other members have left."""
        self._left.wait(seconds)

    def _run(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select(_LOOK_SECONDS):
                    ready = key.fileobj
                    if ready is self._listener:
                        self._accept()
                    elif isinstance(ready, socket.socket):
                        self._hear(ready)
                self._look()
        except BaseException:  # noqa: BLE001 - without this thread the run would stand still
            traceback.print_exc()
            os._exit(ExitCode.RETRYABLE)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            _keep_alive(connection)
            self._rest[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_LINE_BYTES)
            *lines, rest = (self._rest[connection] + data).split(b"\n")
            self._rest[connection] = rest
            for line in lines:
                self._take(connection, json.loads(line))
        except BlockingIOError:
            return
        except (OSError, ValueError, KeyError, TypeError):
            data = b""  # no member: a probe, or another protocol
        if not data or len(rest) > _LINE_BYTES:
            self._drop(connection)

    def _take(self, connection: socket.socket, message: Mapping[str, Any]) -> None:
        now, name = time.monotonic(), self._names.get(connection)
        if name is None:
            self._welcome(connection, message, now)
        elif "ready" in message:
            self._generations.ready(name, int(message["ready"]))
        elif "stepped" in message:
            self._generations.stepped(name)
        elif "ended" in message:
            self._generations.ended(name, int(message["ended"]), now)

    def _welcome(self, connection: socket.socket, message: Mapping[str, Any], now: float) -> None:
        name = str(message["name"])
        for other, other_name in list(self._names.items()):
            if other_name == name:
                self._drop(other)  # the same task, whose connection was lost without a word
        self._names[connection] = name
        self._generations.joined(
            name,
            str(message["role"]),
            int(message["index"]),
            str(message["host"]),
            Identity.of(message["identity"]),
            now,
            strays=bool(message["runs"]),
        )
        self._tell(connection, {"welcome": 1})

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
        self._rest.pop(connection, None)
        name = self._names.pop(connection, None)
        if name is not None:
            self._generations.gone(name, time.monotonic())

    def _look(self) -> None:
        generations = self._generations
        number = generations.number
        for order in list(generations.look(time.monotonic())):
            self._carry_out(order)
        if generations.number != number:
            now, before = generations.workers, self._before
            joined, left = sorted(set(now) - set(before)), sorted(set(before) - set(now))
            reason = "" if joined or left else "a task was started again"
            if number < 0:
                reason = "the first generation"
            self._say(MembershipRecord(now, joined, left, reason, generations.number))
            self._before = now
        self.missing, self.idle_since = generations.missing(), generations.idle_since
        if generations.is_done and generations.count <= 1:
            self._left.set()

    def _carry_out(self, order: Order) -> None:
        connection = next(each for each, name in self._names.items() if name == order.name)
        if "drop" in order.message:
            self._drop(connection)
            return
        self._tell(connection, order.message)
        if "refuse" in order.message:
            why = order.message["refuse"]
            self._say(Notice(f"{order.name} is not taken in: {why}; the others continue without it"))

    def _tell(self, connection: socket.socket, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(message).encode() + b"\n")


def _keep_alive(connection: socket.socket) -> None:
    """Has the kernel notice that the other side's node is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBE_SECONDS),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", _LOST_AFTER),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
