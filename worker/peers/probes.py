"""Probes a task's port, and waits for the other tasks.

Standard library only: the supervisor process uses it, which has no TensorFlow.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from worker.peers import host_names

PROBE_SECONDS = 2.0
_ROUND_SECONDS = 0.1
_REPORT_SECONDS = 10.0
_THREADS = 64

SILENT = "it accepts connections but does not answer"
"""The `fault` of a task that hangs. A task with another fault may be restarting."""

REFUSED = "nothing listens on its port: connection refused"
"""The `fault` of a task whose process has ended, in a pod that is still there."""

# A client's connection preface and an empty SETTINGS frame (RFC 9113, sections 3.4 and 6.5). A gRPC server
# sends its own SETTINGS as soon as it serves the connection. For a process that is stopped or hung, the
# kernel still accepts connections, but nothing is sent.
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def split(address: str) -> tuple[str, int]:
    """Splits `host:port`, with or without brackets around an IPv6 host. Raises ValueError."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def at_port(address: str, port: int) -> str:
    """Returns the address of another port of the same host."""
    host, _ = split(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connects(address: str, seconds: float = PROBE_SECONDS) -> bool:
    """Returns whether a process listens on `address`: it opens a plain TCP connection and closes it."""
    try:
        socket.create_connection(split(address), seconds).close()
    except OSError:
        return False
    return True


def absence(address: str, seconds: float = PROBE_SECONDS) -> str | None:
    """Returns why no connection to `address` can be made, or None where a process listens."""
    made = connect(address, seconds)
    if isinstance(made, str):
        return made
    made.close()
    return None


def fault(address: str, seconds: float = PROBE_SECONDS) -> str | None:
    """Returns why the gRPC server on `address` cannot be used, or None where it answers."""
    connection = connect(address, seconds)
    if isinstance(connection, str):
        return connection
    with connection:
        try:
            connection.settimeout(seconds)
            connection.sendall(_HTTP2_HELLO)
            answered = bool(connection.recv(9))
        except OSError:
            answered = False
    return None if answered else SILENT


def connect(address: str, seconds: float) -> socket.socket | str:
    """Returns a connection to `address`, or why there is none."""
    made = _connect(address, seconds)
    return made if isinstance(made, str) else made[0]


def place(address: str, seconds: float = PROBE_SECONDS) -> str | None:
    """Returns the IP address and port at which a process listens on `address`, None where none does."""
    made = _connect(address, seconds)
    if isinstance(made, str):
        return None
    connection, (host, port, *_) = made
    connection.close()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connect(address: str, seconds: float) -> tuple[socket.socket, Any] | str:
    """Returns a connection and where it leads: the socket itself does not know that any more once the other
    side has closed it.
    """
    try:
        addresses = host_names.look_up(*split(address), seconds)
    except host_names.Unresolved as error:
        return str(error)
    reason = "its name has no address"
    for family, there in addresses:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(seconds)
            connection.connect(there)
            return connection, there
        except OSError as error:
            connection.close()
            reason = _unreachable(error)
    return reason


def located(addresses: Collection[str]) -> dict[str, str]:
    """Returns each of the addresses with the IP address at which its task answers in the place of the name;
    unchanged where none answers, or by IPv6 alone, which TensorFlow cannot read. All are asked at once.

    TensorFlow looks a name up when it connects, and may get the address of a pod that is gone: from a DNS
    server's cache, or while the pod ends. gRPC looks it up again after 30 s at the earliest
    (GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS), an interval for which TensorFlow has no option.
    """
    if not addresses:
        return {}
    with concurrent.futures.ThreadPoolExecutor(min(_THREADS, len(addresses))) as pool:
        return dict(zip(addresses, pool.map(_located, addresses)))


def _located(address: str) -> str:
    if host_names.is_ip(split(address)[0]):
        return address
    location = place(address)
    return address if location is None or location.startswith("[") else location


def _unreachable(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return "connecting to it times out: its pod is gone, or its node, or a NetworkPolicy is in the way"
    return f"it cannot be reached: {error.strerror or error}: a NetworkPolicy?"


def faults(peers: Mapping[str, str], seconds: float = PROBE_SECONDS) -> dict[str, str]:
    """Returns the `fault` of every peer that has one. `peers` maps pod names to addresses, and all are probed
    at once.
    """
    if not peers:
        return {}
    with concurrent.futures.ThreadPoolExecutor(min(_THREADS, len(peers))) as pool:
        reasons = pool.map(lambda address: fault(address, seconds), peers.values())
        return {name: reason for name, reason in zip(peers, reasons) if reason}


def described(faults_by_name: Mapping[str, str], limit: int = 5) -> str:
    """Returns `faults` as the end of a sentence, with at most `limit` names."""
    named = [f"{name} ({reason})" for name, reason in list(faults_by_name.items())[:limit]]
    more = len(faults_by_name) - limit
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


class Unanswered(Exception):  # noqa: N818 - says what happened
    """Some peers did not answer before the deadline; `missing` has their `faults`."""

    def __init__(self, missing: dict[str, str], deadline: float) -> None:
        super().__init__(f"after {deadline:.0f} s there was no answer from {described(missing)}")
        self.missing = missing


def wait(
    peers: Mapping[str, str],
    deadline: float,
    report: Callable[[Mapping[str, str], float], None],
    alive: Callable[[], None] = lambda: None,
    check: Callable[[str], str | None] = fault,
    enough: Callable[[Mapping[str, str]], bool] = lambda missing: not missing,
) -> dict[str, str]:
    """Waits until every peer has answered once, or the missing ones are no longer waited for. Returns these
    and their faults. Raises `Unanswered` after `deadline` seconds.

    `enough(missing)` is called after each round with the missing peers and their faults. `report(reasons,
    seconds)` gets them after the first round, then about every ten seconds, and none at the end. `alive` is
    called about once a round.
    """
    started = time.monotonic()
    missing = dict(peers)
    reported = -_REPORT_SECONDS
    reported_any = False
    with concurrent.futures.ThreadPoolExecutor(min(_THREADS, len(peers) or 1)) as pool:
        while True:
            reasons = dict(zip(missing, pool.map(check, missing.values())))
            alive()
            missing = {name: missing[name] for name, reason in reasons.items() if reason}
            waited = time.monotonic() - started
            why = {name: reasons[name] or "" for name in missing}
            if enough(why):
                if reported_any:
                    report({}, waited)
                return why
            if waited >= deadline:
                raise Unanswered(why, deadline)
            if waited - reported >= _REPORT_SECONDS:
                report(why, waited)
                reported, reported_any = waited, True
            time.sleep(min(_ROUND_SECONDS, max(0.0, deadline - waited)))


@contextlib.contextmanager
def listening(address: str | None) -> Iterator[None]:
    """Accepts connections on the port of `address` and closes them, until the block ends.

    A task that waits for its own peers has no server yet. Without this, workers would count a chief as lost
    while it waits for a new ps.
    """
    listener = None
    if address:
        with contextlib.suppress(OSError):
            listener = socket.create_server(("", split(address)[1]), backlog=128)
    if listener is None:
        yield
        return
    closing = threading.Event()

    def accept() -> None:
        listener.settimeout(0.2)
        while not closing.is_set():
            with contextlib.suppress(OSError):
                listener.accept()[0].close()

    thread = threading.Thread(target=accept, name="listening", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept() on Linux; elsewhere its timeout does
        thread.join()
        listener.close()
