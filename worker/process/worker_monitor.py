"""Says which workers have stopped answering while the training continues without them, and who is back.

Under ParameterServer a lost worker is no error: the coordinator gives its steps to the others and waits for
it, without a word. Standard library only, for the supervisor of `watchdog`: its threads run whatever
TensorFlow does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from worker.process import probes

ROUND_SECONDS = 5.0
PROBES_PER_SECOND = 20.0
"""At most: with 1,000 workers a round takes 50 s."""


class WorkerMonitor:
    """Probes the workers one by one, in rounds; `say` hears a sentence at the end of a round with news.

    A worker counts as gone when two rounds on end found it so: a restart in between is none.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._workers: Mapping[str, str] = {}
        self._suspects: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def follow(self, workers: Mapping[str, str]) -> None:
        """These from now on, pod name to address; none when they are about to be released."""
        with self._lock:
            self._workers = dict(workers)
            self._suspects, self._gone = {}, {}
        if self._thread is None and workers:
            self._thread = threading.Thread(target=self._watch, name="attendance", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            workers = self._workers
            began = time.monotonic()
            found: dict[str, str] = {}
            for name, address in workers.items():
                reason = probes.fault(address)
                if reason:
                    found[name] = reason
                time.sleep(max(1 / PROBES_PER_SECOND, ROUND_SECONDS / len(workers)))
                if self._workers is not workers:
                    break
            else:
                self._compare(workers, found)
            if not workers:
                time.sleep(max(0.0, ROUND_SECONDS - (time.monotonic() - began)))

    def _compare(self, workers: Mapping[str, str], found: Mapping[str, str]) -> None:
        with self._lock:
            if self._workers is not workers:
                return
            now = time.monotonic()
            new = {
                name: reason
                for name, reason in found.items()
                if name in self._suspects and name not in self._gone
            }
            back = {name: now - since for name, since in self._gone.items() if name not in found}
            self._suspects = dict(found)
            self._gone.update(dict.fromkeys(new, now))
            for name in back:
                del self._gone[name]
            if new:
                left = len(workers) - len(self._gone)
                self._say(
                    f"training continues with {left} of {len(workers)} workers, without "
                    f"{probes.described(new)}: it is used again when it is back"
                )
            if back:
                times = {name: f"after {seconds:.0f} s" for name, seconds in back.items()}
                self._say(f"back again: {probes.described(times)}")
