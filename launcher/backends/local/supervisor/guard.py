"""The first of a run's two processes: `python guard.py N`, where N is a socket from which it reads its order.

It is started early, so that Python and its modules are loaded when the order comes. The order is the run's
directory, with the descriptors of the run's lock, its control pipe and, unless the run goes on without its
launcher, a lifeline. The guard then forks the supervisor and waits. However the supervisor ends, by `kill -9`
too, it kills what is left of the pods, all descendants, and only its own end frees the run's lock.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # The launcher waits for the process that it has started: it ends before the slow part.
    if os.fork() > 0:
        os._exit(0)
    # A script's own directory comes first on the path, where `jobs` and `pods` would be top-level modules.
    del sys.path[0]

import json
import signal
import socket
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

from launcher.backends.local import metrics
from launcher.backends.local.pod.pods import Surroundings
from launcher.backends.local.process import mount_namespace, network_namespace
from launcher.backends.local.process.processes import adopt_orphans, die_with_parent, kill_children
from launcher.backends.local.process.proxy import Proxy
from launcher.backends.local.store import RunDirectory
from launcher.backends.local.supervisor.orphans import kill_leftovers
from launcher.backends.local.supervisor.supervisor import Supervisor


def main() -> NoReturn:
    """Waits for the order, and carries it out."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    forbidden = network_namespace.forbidden()
    message, descriptors, _, _ = socket.recv_fds(orders, 1 << 16, 3)
    if not message:
        os._exit(0)  # the launcher does not need it
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    lock, control, *lifeline = descriptors
    order = json.loads(message)
    directory = RunDirectory(Path(order["store"]), order["namespace"], order["run"])
    _move_to(directory)
    adopt_orphans()
    try:
        orders.send(f"taken {forbidden}".encode())
    except OSError:
        os._exit(0)  # the launcher has given up waiting, and has removed the run
    guard = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        orders.close()
        die_with_parent(signal.SIGTERM)
        if os.getppid() != guard:
            os._exit(1)
        network: bool = order["allow_network"]
        _supervise(directory, control, lifeline[0] if lifeline else None, None if forbidden else network)
    for descriptor in (control, *lifeline):
        os.close(descriptor)
    orders.close()
    _guard(supervisor)
    kill_leftovers(directory)
    os.close(lock)
    os._exit(0)


def _move_to(directory: RunDirectory) -> None:
    """Leaves the launcher's folder, and its standard output and error."""
    os.chdir(directory.path)
    log = os.open(directory.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _guard(supervisor: int) -> None:
    """Returns when the supervisor has ended, and all descendants have been killed."""

    def forward(number: int, _: FrameType | None) -> None:
        # Its number is not used again before it is reaped.
        os.kill(supervisor, number)

    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in signals:
        signal.signal(number, forward)
    while os.waitpid(-1, 0)[0] != supervisor:
        pass
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    kill_children()


def _supervise(directory: RunDirectory, control: int, lifeline: int | None, network: bool | None) -> NoReturn:
    """`network`: the machine's, or one of the run's own; None where namespaces are forbidden."""
    code = 1
    try:
        submission = directory.submission()
        listeners = {} if submission is None else metrics.listen(submission)
        surroundings = Surroundings(listeners=listeners)
        if network is not None:
            proxy = None if network else Proxy()
            network_namespace.leave(network=network)
            surroundings = Surroundings(
                proxy.open() if proxy is not None else {}, mount_namespace.possible(), listeners
            )
        Supervisor(directory, control, lifeline, surroundings).supervise()
        code = 0
    except BaseException:  # noqa: BLE001 - the log is all that is left of it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
