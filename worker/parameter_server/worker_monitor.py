"""Reports which workers stop answering while the training continues without them, and which come back.

Under ParameterServer a lost worker is no error: the coordinator gives its steps to the other workers and
waits for it, without a message. The module uses the standard library only. It runs in the supervisor process,
so its threads run whatever TensorFlow does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from worker.peers import probes

ROUND_SECONDS = 5.0
PROBES_PER_SECOND = 20.0
"""Upper limit: with 1,000 workers a round takes 50 s."""


class WorkerMonitor:
    """Probes the workers one by one, in rounds. `say` gets a sentence at the end of a round that found a
    change, and `count` how many are there.

    A worker counts as gone after two failed rounds in a row, so that a short restart is not reported.
    """

    def __init__(self, say: Callable[[str], None], count: Callable[[int], None] = lambda _: None) -> None:
        self._say = say
        self._count = count
        self._lock = threading.Lock()
        self._workers: Mapping[str, str] = {}
        self._suspects: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def follow(self, workers: Mapping[str, str]) -> None:
        """Watches `workers`, pod name to address, from now on; none when they are about to be released."""
        with self._lock:
            self._workers = dict(workers)
            self._suspects, self._gone = {}, {}
            if workers:
                self._count(len(workers))
        if self._thread is None and workers:
            self._thread = threading.Thread(target=self._watch, name="attendance", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            workers = self._workers
            began = time.monotonic()
            faults: dict[str, str] = {}
            for name, address in workers.items():
                reason = probes.fault(address)
                if reason:
                    faults[name] = reason
                time.sleep(max(1 / PROBES_PER_SECOND, ROUND_SECONDS / len(workers)))
                if self._workers is not workers:
                    break
            else:
                self._compare(workers, faults)
            if not workers:
                time.sleep(max(0.0, ROUND_SECONDS - (time.monotonic() - began)))

    def _compare(self, workers: Mapping[str, str], faults: Mapping[str, str]) -> None:
        with self._lock:
            if self._workers is not workers:
                return
            now = time.monotonic()
            new = {
                name: reason
                for name, reason in faults.items()
                if name in self._suspects and name not in self._gone
            }
            back = {name: now - since for name, since in self._gone.items() if name not in faults}
            self._suspects = dict(faults)
            self._gone.update(dict.fromkeys(new, now))
            for name in back:
                del self._gone[name]
            left = len(workers) - len(self._gone)
            if new or back:
                self._count(left)
            if new:
                self._say(
                    f"training continues with {left} of {len(workers)} workers, without "
                    f"{probes.described(new)}: it is used again when it is back"
                )
            if back:
                times = {name: f"after {seconds:.0f} s" for name, seconds in back.items()}
                self._say(f"back again: {probes.described(times)}")
