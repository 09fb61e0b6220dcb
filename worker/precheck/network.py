"""How fast this task reaches the others: latency and bandwidth to a few of them, whatever their number.

The tasks stand in a ring. Each measures to those that are one step, a third and a half of the ring ahead, all
of them at the same time, as in a sum over all tasks; so each task's network is used in both directions. The
port is the one that TensorFlow will listen at, which the run's NetworkPolicy opens for its own tasks.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import BinaryIO, Final

from worker.peers import probes

_HELLO: Final = b"tf-launcher precheck\n"
_WELCOME: Final = b"measure\n"
_ECHO, _PART, _END = b"e", b"p", b"."
_PART_BYTES: Final = 256 << 10
_ECHOES: Final = 50
_ROUND_SECONDS: Final = 1.5
"""Between the beginnings of the measurements to two tasks."""
_PART_SECONDS: Final = 1.0
"""For so long, parts are sent."""
_STEP_SECONDS: Final = 3.0
"""A connection on which nothing moves for so long is given up."""
_OTHERS_SECONDS: Final = 8.0
"""From the moment when all are there: limit for those that measure to this task."""


@dataclass(frozen=True)
class Connection:
    """What a connection to another task can do: the median of round trips in milliseconds, and MB/s."""

    latency: float
    bandwidth: float


def measured_by(tasks: Sequence[str], task: str) -> list[str]:
    """Returns the tasks to which `task` measures, one to three of `tasks` that stand in one order for all."""
    number, count = tasks.index(task), len(tasks)
    steps = dict.fromkeys(step for step in (1, count // 3, count // 2) if 0 < step < count)
    return list(dict.fromkeys(tasks[(number + step) % count] for step in steps))


class Measurements:
    """Listens at this task's address, from the beginning of a `with` block to its end, for the others."""

    def __init__(self, addresses: Mapping[str, str], task: str) -> None:
        """`addresses` has all tasks in one order, this one too, by pod name."""
        self._addresses = addresses
        self._task = task
        tasks = list(addresses)
        self._ahead = measured_by(tasks, task)
        self._behind = {other for other in tasks if task in measured_by(tasks, other)}
        self._served: set[str] = set()

    def __enter__(self) -> Measurements:
        _, port = probes.split(self._addresses[self._task])
        self._listener = socket.create_server(("", port), backlog=128)
        threading.Thread(target=self._accept, name="precheck", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()

    def measure(self) -> dict[str, Connection]:
        """Returns the connections by pod name, once all tasks are there. Those tasks are left out that do not
        measure now: they train already, and this one's pod was replaced.
        """
        began = time.monotonic()
        connections = {}
        for number, other in enumerate(self._ahead):
            time.sleep(max(0.0, began + number * _ROUND_SECONDS - time.monotonic()))
            with contextlib.suppress(OSError):
                if (connection := self._measure(other)) is not None:
                    connections[other] = connection
        # Who answers has others to serve, which began at the same time.
        while connections and self._behind - self._served and time.monotonic() < began + _OTHERS_SECONDS:
            time.sleep(0.05)
        return connections

    def _measure(self, other: str) -> Connection | None:
        connection = probes.connect(self._addresses[other], probes.PROBE_SECONDS)
        if isinstance(connection, str):
            return None
        with connection:
            connection.settimeout(_STEP_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(_HELLO + self._task.encode() + b"\n")
            if _received(connection, len(_WELCOME)) != _WELCOME:
                return None
            trips = []
            for _ in range(_ECHOES):
                began = time.perf_counter()
                connection.sendall(_ECHO)
                if _received(connection, 1) != _ECHO:
                    return None
                trips.append(time.perf_counter() - began)
                if sum(trips) > _PART_SECONDS / 2:
                    break
            sent, began = 0, time.perf_counter()
            part = _PART + bytes(_PART_BYTES)
            with contextlib.suppress(OSError):  # it stands still: what went through counts
                while time.perf_counter() - began < _PART_SECONDS:
                    connection.sendall(part)
                    if _received(connection, 1) != _PART:
                        break
                    sent += _PART_BYTES
                connection.sendall(_END)
            seconds = time.perf_counter() - began
            return Connection(1e3 * median(trips), sent / seconds / 1e6)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], name="precheck", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_STEP_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = connection.makefile("rb")
            if stream.readline(len(_HELLO)) != _HELLO:
                return  # a probe, or something else
            other = stream.readline(256).decode(errors="replace").strip()
            connection.sendall(_WELCOME)
            try:
                for answer in _answers(stream):
                    connection.sendall(answer)
            finally:
                self._served.add(other)


def _answers(stream: BinaryIO) -> Iterator[bytes]:
    """Yields the answer to each order, once all of that has come."""
    while (order := stream.read(1)) in (_ECHO, _PART):
        if order == _PART and len(stream.read(_PART_BYTES)) < _PART_BYTES:
            return
        yield order


def _received(connection: socket.socket, size: int) -> bytes:
    """Returns so many bytes; fewer where the other side has closed the connection."""
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data
