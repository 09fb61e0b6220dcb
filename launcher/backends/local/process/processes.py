"""Starts, signals and finds the processes of pods, so that none is left behind.

On Linux a pod's process dies with the supervisor that started it (PR_SET_PDEATHSIG), and what has left its
session is found by MARK in /proc. Elsewhere a pod is its process group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from launcher.backends.local.process import mount_namespace
from launcher.backends.local.process.mount_namespace import View
from worker.contract.environment import Env

LINUX: Final = sys.platform == "linux"

MARK: Final = Env.LOCAL
"""In every pod's environment, `<uid of the run>/<uid of the pod>`."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
"""Both from linux/prctl.h."""

_libc: Any = ctypes.CDLL(None, use_errno=True) if LINUX else None


def die_with_parent(number: signal.Signals) -> None:
    """Asks the kernel for this signal when the parent is gone. Linux only; elsewhere nothing."""
    if LINUX:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans. Linux only; elsewhere nothing."""
    if LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Launch:
    """What to start. Standard output and error are appended to `log`; `view` is what it sees of the files. It
    inherits the descriptors `inherited`.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    view: View | None = None
    inherited: Sequence[int] = ()


class Process:
    """A pod's process, leader of a session and a process group of its own."""

    def __init__(self, launch: Launch) -> None:
        """Starts it. Raises OSError when it cannot be started."""
        supervisor = os.getpid()

        def before_exec() -> None:
            die_with_parent(signal.SIGKILL)
            if os.getppid() != supervisor:  # it died before prctl
                os._exit(1)
            if launch.view is not None:
                try:
                    mount_namespace.enter(launch.view)
                except OSError as error:
                    os.write(2, f"the task's volumes cannot be mounted: {error}\n".encode())
                    os._exit(1)

        with launch.log.open("ab") as log:
            self._popen = subprocess.Popen(
                launch.argv,
                env=launch.env,
                cwd=launch.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=launch.inherited,
                preexec_fn=before_exec if LINUX else None,
            )
        self.pid = self._popen.pid

    def poll(self) -> int | None:
        """The exit code as a container's, 128 + n after signal n; None while it runs.

        What it leaves in its group is killed, as the end of a container's first process does. That comes
        before it is reaped: until then nobody else can have its number.
        """
        if self._popen.returncode is None:
            if LINUX:
                waited = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if waited is None:
                    return None
                self.signal(signal.SIGKILL)
                self._popen.wait()
            elif self._popen.poll() is None:
                return None
            else:
                self.signal(signal.SIGKILL)
        code = self._popen.returncode
        return 128 - code if code < 0 else code

    def signal(self, number: signal.Signals) -> None:
        """Sends the signal to the whole group."""
        _signal_group(self.pid, number)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        pass


def kill_marked(marks: Collection[str]) -> None:
    """Kills every process with one of these beginnings of MARK's value, whatever session it is in.

    Repeats until it finds none, for a process may fork while the others are being killed; gives up on
    those that a kill does not reach within about a second (a dead disk, another user). Linux only.
    """
    wanted = tuple(f"{MARK}={mark}".encode() for mark in marks)
    for attempt in range(100 if LINUX and wanted else 0):
        processes = _marked(wanted)
        if not processes:
            return
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        time.sleep(0.01 if attempt else 0.0)


def _marked(wanted: tuple[bytes, ...]) -> list[int]:
    processes = []
    for process in _numbers():
        if process != os.getpid():
            try:
                content = Path(f"/proc/{process}/environ").read_bytes()  # empty for a zombie
            except OSError:
                continue
            if any(variable.startswith(wanted) for variable in content.split(b"\0")):
                processes.append(process)
    return processes


def reap_orphans(own_processes: Collection[int]) -> None:
    """Reaps adopted children that have ended, so that they do not stay as zombies, but not the processes in
    `own_processes`. Linux only; elsewhere nobody is adopted.
    """
    while LINUX:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own_processes:
            return
        os.waitpid(ended.si_pid, 0)


def kill_children() -> None:
    """Kills this process's children until there are none: with `adopt_orphans`, all descendants."""
    while True:
        for child in _children():
            try:
                os.kill(child, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    me = str(os.getpid()).encode()
    return [process for process in _numbers() if _stat(process)[1:2] == [me]]


def _numbers() -> list[int]:
    """Of all processes there are. Linux only; elsewhere none is known."""
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()] if LINUX else []


def _stat(process: int) -> list[bytes]:
    """What /proc says of it, from its state on; empty when there is no such process."""
    try:
        stat = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return []
    return stat.rpartition(b")")[2].split()  # pid (comm) state ppid ...; comm may hold spaces and brackets


def identity(process: int) -> str:
    """`<pid> <start time>`, which no other process will ever have; "" when there is no such process."""
    if LINUX:
        stat = _stat(process)
        return f"{process} {stat[19].decode()}" if stat else ""
    shown = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return f"{process} {shown.stdout.strip()}" if shown.stdout.strip() else ""


def kill_identified(identities: Collection[str]) -> None:
    """Kills these process groups, unless the leader's number belongs to another process now."""
    for known in identities:
        process = int(known.partition(" ")[0])
        if identity(process) == known:
            _signal_group(process, signal.SIGKILL)
