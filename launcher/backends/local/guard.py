"""The first of a run's two processes.

    python -m launcher.backends.local.guard STORE NAMESPACE RUN lock=N control=N [lifeline=N]

It forks the supervisor and waits. However the supervisor ends, by `kill -9` too, the guard then kills what is
left of the pods, all descendants, and only its own end frees the run's lock. The numbers are descriptors;
a run without a lifeline goes on without its launcher.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from launcher.backends.local.processes import adopt_orphans, die_with_parent, kill_children


def main() -> None:
    """Returns at once in the process that the launcher started; the guard never returns."""
    store, namespace, run, *inherited = sys.argv[1:]
    descriptors = {name: int(number) for name, _, number in (word.partition("=") for word in inherited)}
    if os.fork() > 0:
        return
    adopt_orphans()
    guard = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != guard:
            os._exit(1)
        _supervise(Path(store), namespace, run, descriptors)
    for name in descriptors.keys() - {"lock"}:
        os.close(descriptors[name])

    def forward(number: int, _: FrameType | None) -> None:
        os.kill(supervisor, number)

    # As long as the supervisor is not reaped its number is its own.
    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    signal.signal(signal.SIGHUP, forward)
    while os.waitpid(-1, 0)[0] != supervisor:
        pass
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kill_children()
    from launcher.backends.local.leftovers import kill_leftovers
    from launcher.backends.local.store import RunDirectory

    kill_leftovers(RunDirectory(Path(store), namespace, run))
    os.close(descriptors["lock"])
    os._exit(0)


def _supervise(store: Path, namespace: str, run: str, descriptors: dict[str, int]) -> None:
    import traceback

    from launcher.backends.local.store import RunDirectory
    from launcher.backends.local.supervisor import Supervisor

    code = 1
    try:
        directory = RunDirectory(store, namespace, run)
        Supervisor(directory, descriptors["control"], descriptors.get("lifeline")).supervise()
        code = 0
    except BaseException:  # noqa: BLE001 - the log is all that is left of it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
