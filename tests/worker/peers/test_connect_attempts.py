"""An attempt to connect that nobody answers is ended, and no other connection."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.peers import connect_attempts

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def unanswered() -> Iterator[str]:
    """An address where attempts to connect get no answer: its queue of connections is full. The attempts of
    this fixture are ended, so that a test counts its own alone.
    """
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for _ in range(2):
            stack.enter_context(attempt(address))
        connect_attempts.end(address)
        yield address


def attempt(address: str, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.socket(family)
    connection.setblocking(False)
    if family == socket.AF_INET6:
        connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        host = f"::ffff:{host}"
    with contextlib.suppress(BlockingIOError):
        connection.connect((host, int(port)))
    return connection


def is_over(connection: socket.socket, seconds: float = 0.0) -> bool:
    return bool(select.select([], [connection], [], seconds)[1])


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_an_attempt_is_ended(unanswered: str, family: socket.AddressFamily) -> None:
    """Sockets of IPv6 reach IPv4, too: gRPC connects by them."""
    with attempt(unanswered, family) as connection:
        time.sleep(0.1)
        assert not is_over(connection)
        before = len(list(DESCRIPTORS.iterdir()))
        assert connect_attempts.end(unanswered) == 1
        assert len(list(DESCRIPTORS.iterdir())) == before
        assert is_over(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        assert connect_attempts.end(unanswered) == 0
        os.fstat(connection.fileno())  # the socket itself is whoever opened it to close


def test_other_connections_stay(unanswered: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.create_connection(server.getsockname()) as connection, server.accept()[0] as accepted:
            with attempt(unanswered) as unrelated:
                assert connect_attempts.end(other) == 0
                assert not is_over(unrelated, 0.1)
            connection.sendall(b"x")
            assert accepted.recv(1) == b"x"


def test_attempts_have_a_limit(unanswered: str) -> None:
    with connect_attempts.limited(unanswered, 0.5):
        with attempt(unanswered) as first:
            assert not is_over(first, 0.2)
            assert is_over(first, 5.0)
        with attempt(unanswered) as later:
            assert is_over(later, 5.0)
    with attempt(unanswered) as after:
        assert not is_over(after, 0.3)
