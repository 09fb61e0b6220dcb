"""A process that imports TensorFlow once and then starts the task's training processes, one after another.

The import takes 2 to 18 s, and a fork of a process that has imported takes none. A fork copies only the
thread that calls it, and a process that is forked cannot use a GPU that was initialized before. So the
starter does nothing but import, and `may_fork` looks at what that has left behind. Where something does not
survive a fork, the starter itself is the training process, and the supervisor starts a new Python for the
next.

It obeys the supervisor, which is its parent: each line in `orders` starts a training process. The line is a
JSON mapping of further environment variables. It answers by JSON lines in `reports`: `{"preloaded": 1}` once,
`{"started": PID}` and `{"ended": WAIT STATUS}`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from worker.contract.exit_codes import ExitCode
from worker.process.watch import Watch

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/console")
_HARMLESS_FOLDERS = ("/dev/pts/", "/dev/shm/")  # noqa: S108 - the names of open files


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


class Pipes(NamedTuple):
    """File descriptors: the starter's own two, the one by which the training process gives signs of life, and
    of the stacks of its threads the one by which they are asked for and their file.
    """

    orders: int
    reports: int
    signs: int
    asked: int
    stacks: int


def serve(work: Work, pipes: Pipes, supervisor: int) -> NoReturn:
    """Calls `work.preload`, then runs `work.train` for each order: in a new process with `work.forks` where
    that is safe, else in this one.

    `work.preload` may raise: `work.train` will do the same, and report it. `supervisor` is the parent's
    process id. It must be called while the process has one thread.
    """
    os.set_blocking(pipes.signs, False)
    _die_with(supervisor)
    for descriptor in pipes:
        os.set_inheritable(descriptor, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only for the training process. On a terminal, or on this machine, the whole group gets it.
        signal.signal(number, signal.SIG_IGN)
    # Before there is a training process: without a handler the signal would end it.
    faulthandler.register(signal.SIGUSR1, pipes.stacks, all_threads=True)
    forks = _preload(work.preload) and work.forks and may_fork()
    if forks:
        # A child that searches its parent's objects for garbage copies the pages that they are in.
        gc.freeze()
    _report(pipes, preloaded=1)
    starter = os.getpid()
    orders = os.fdopen(pipes.orders, "rb", buffering=0)
    while order := orders.readline():
        child = os.fork() if forks else 0
        if child == 0:
            os.environ.update(json.loads(order))
            _train(work, pipes, starter)
        _report(pipes, started=child)
        _, status = os.waitpid(child, 0)
        _report(pipes, ended=status)
    os._exit(ExitCode.DONE)


def _preload(preload: Callable[[], None] | None) -> bool:
    """Returns whether `preload` succeeded, or there is none."""
    try:
        if preload is not None:
            preload()
    except BaseException:  # noqa: BLE001 - the training process gets the same error, and reports it
        return False
    return True


def _train(work: Work, pipes: Pipes, starter: int) -> NoReturn:
    if os.getpid() != starter:
        _die_with(starter)
        if "numpy.random" in sys.modules:
            # Else every training process would draw the same numbers. Python reseeds its own generator.
            sys.modules["numpy.random"].seed()
    else:
        _report(pipes, started=starter)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_show_stacks, args=(pipes,), name="stacks", daemon=True).start()
    code = 1
    try:
        code = work.train(Watch(pipes.signs))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _show_stacks(pipes: Pipes) -> None:
    """Writes the stacks whenever they are asked for. With Python's lock: no thread moves meanwhile, or ends.
    Where a thread keeps the lock, the signal's handler does it in this one's place.
    """
    while os.read(pipes.asked, 1):
        if os.fstat(pipes.stacks).st_size == 0:
            faulthandler.dump_traceback(pipes.stacks, all_threads=True)


def may_fork() -> bool:
    """Returns whether a forked child of this process can do all that this process could.

    It has no thread but this one, once those are gone that end before a fork (numpy's OpenBLAS, by
    pthread_atfork), and no device is open: a driver knows the process that opened it.
    """
    if sys.platform != "linux":
        return False  # there is no /proc to look in
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return len(list(Path("/proc/self/task").iterdir())) == 1 and not open_devices()


def open_devices() -> list[str]:
    """Returns the paths of the devices that this process has opened, such as `/dev/nvidiactl`."""
    paths = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            path = str(descriptor.readlink())
            if path.startswith("/dev/") and path not in _HARMLESS and not path.startswith(_HARMLESS_FOLDERS):
                paths.append(path)
    return paths


def _report(pipes: Pipes, **fields: int) -> None:
    os.write(pipes.reports, json.dumps(fields).encode() + b"\n")


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, for whatever reason."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0:
            if os.getppid() != parent:
                os._exit(ExitCode.RETRYABLE)
            return

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(ExitCode.RETRYABLE)

    threading.Thread(target=follow, name="follow", daemon=True).start()
