"""Small runs for an hour, four at a time and one after another, and something happens to each of them: a
task, its supervisor or who follows it is killed, it is interrupted, deleted, replaced or suspended. Nothing
may be left.

One run in a few trains with TensorFlow; the others leave an open port, files and a process that would live
on. This process submits them by `import launcher`, waits for them, deletes them and lists what there is: it
is the long-lived process whose memory and descriptors are looked at.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import launcher
from benchmarks import recording, soak_runs
from benchmarks.measuring import table
from benchmarks.soak_cluster import cluster
from benchmarks.soak_local import Local, local, megabytes
from benchmarks.soak_runs import Outcome, Place
from launcher.errors import LauncherError
from launcher.plan import roles

LANES = (4, 1)
"""Runs at a time, each for its part of the time. The most first: what threads need once is no growth."""
_LIST_SECONDS = 5.0
_GROWTH = 1.1
_GROWTH_MEGABYTES = 4.0
"""More than both is a leak: what Python's and the C library's heaps do not give back is less."""
_WARM_UP = 0.2
"""Of the runs, before the memory counts."""


@dataclass
class Usage:
    """This process, at some moment."""

    megabytes: float
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Usage:
        """As it is."""
        gc.collect()
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return cls(megabytes(os.getpid()), descriptors, threading.active_count())


@dataclass
class Soak:
    """The runs so far. `usages` is one for each that has ended while it was the only one."""

    place: Place
    training: int
    outcomes: list[Outcome] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0

    def lane(self, until: float) -> None:
        """Runs one after another, until that monotonic time."""
        while time.monotonic() < until:
            with self._lock:
                number = self._number
                self._number += 1
            kinds = list(self.place.ends)
            kind = kinds[number % len(kinds)]
            # Every kind meets a training in turn.
            turn = number // len(kinds) + number % len(kinds)
            is_training = self.training > 0 and turn % self.training == self.training - 1
            outcome = soak_runs.soak(self.place, number, kind, is_training=is_training)
            with self._lock:
                self.outcomes.append(outcome)
                self.usages.append(Usage.now())
            if outcome.problem:
                print(f"run {number}, {kind}: {outcome.problem}", file=sys.stderr, flush=True)

    def run(self, minutes: float) -> None:
        """All lanes."""
        for lanes in LANES:
            until = time.monotonic() + minutes * 60 / len(LANES)
            threads = [threading.Thread(target=self.lane, args=(until,)) for _ in range(lanes)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def listing(place: Place) -> Iterator[None]:
    """Lists the runs from time to time."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LIST_SECONDS):
            with contextlib.suppress(LauncherError):
                for run in launcher.runs(backend=place.backend):
                    run.status()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def grew(first: float, last: float) -> bool:
    """Whether that is a leak."""
    return last > first * _GROWTH and last > first + _GROWTH_MEGABYTES


def ends(outcomes: Sequence[Outcome]) -> str:
    """A table: of each thing that may befall a run, how many runs, and how they ended."""
    rows = []
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        group = [outcome for outcome in outcomes if outcome.kind == kind]
        phases = Counter(outcome.phase for outcome in group)
        rows.append(
            (
                kind,
                str(len(group)),
                str(sum(outcome.training is not None for outcome in group)),
                ", ".join(f"{count} {phase or 'nothing'}" for phase, count in phases.most_common()),
                str(sum(not outcome.problem for outcome in group)),
            )
        )
    rows.append(
        (
            "all",
            str(len(outcomes)),
            str(sum(outcome.training is not None for outcome in outcomes)),
            "",
            str(sum(not outcome.problem for outcome in outcomes)),
        )
    )
    return table(("what befell them", "runs", "of TensorFlow", "ended as", "as expected"), rows)


def trained(outcomes: Sequence[Outcome]) -> str:
    """A table: by what the runs trained; "" where none did."""
    rows = []
    for name in sorted({str(outcome.training) for outcome in outcomes if outcome.training}):
        group = [outcome for outcome in outcomes if str(outcome.training) == name]
        seconds = statistics.median(outcome.seconds for outcome in group)
        rows.append((name, str(len(group)), f"{seconds:.0f}", str(sum(not each.problem for each in group))))
    return table(("trained by", "runs", "median s", "as expected"), rows) + "\n\n" if rows else ""


def memory(soaked: Soak) -> tuple[str, list[str]]:
    """A table of what lives longest, and what of it has grown."""
    usages = soaked.usages[int(len(soaked.usages) * _WARM_UP) :]
    first, last = usages[0], Usage.now()
    rows = [
        ("the library's process, MB", f"{first.megabytes:.1f}", f"{last.megabytes:.1f}"),
        ("its descriptors", str(first.descriptors), str(last.descriptors)),
        ("its threads", str(first.threads), str(last.threads)),
    ]
    grown = ["memory"] if grew(first.megabytes, last.megabytes) else []
    if last.descriptors > first.descriptors + max(LANES):
        grown.append("descriptors")
    if isinstance(soaked.place, Local):
        kept = soaked.place.supervisors
        some = max(1, len(kept) // 10)
        for number, name in enumerate(("guard", "supervisor")):
            begin = statistics.median(pair[number] for pair in kept[:some])
            end = statistics.median(pair[number] for pair in kept[-some:])
            rows.append((f"a run's {name}, MB, at its peak", f"{begin:.1f}", f"{end:.1f}"))
            grown += [name] if grew(begin, end) else []
    return table(("", "first", "last"), rows), grown


def main() -> int:
    """Exit code 1 where something is left, has grown, or came to another end."""
    parser = recording.parser("benchmarks.soak", str(__doc__), 0)
    parser.add_argument("--minutes", type=float, default=60.0, help="(%(default)s)")
    parser.add_argument(
        "--training", type=int, default=8, help="one run in so many uses TensorFlow; 0: none (%(default)s)"
    )
    parser.add_argument("--backend", choices=("local", "kubernetes"), default="local", help="(%(default)s)")
    parser.add_argument(
        "--real",
        action="store_true",
        help="every run trains; on a cluster, the kubeconfig's, in real pods of --image, "
        f"or $LAUNCHER_TEST_IMAGE, or {roles.DEFAULT_IMAGE}",
    )
    parser.add_argument("--image", default="", help="of the worker, on the kubeconfig's cluster")
    options = parser.parse_args()
    on_cluster = options.backend == "kubernetes"
    if options.real:
        options.training = 1
        options.image = options.image or os.environ.get("LAUNCHER_TEST_IMAGE", roles.DEFAULT_IMAGE)
        if on_cluster and not os.environ.get("KUBECONFIG"):
            parser.error("--real: KUBECONFIG names no cluster")
    with contextlib.ExitStack() as stack:
        place: Place
        place = stack.enter_context(cluster(options.image)) if on_cluster else stack.enter_context(local())
        stack.enter_context(listing(place))
        # Without an image, a cluster's pods are only played.
        soaked = Soak(place, 0 if on_cluster and not options.image else options.training)
        soaked.run(options.minutes)
        left = place.left()
    table_of_memory, grown = memory(soaked)
    counts = ", ".join(f"{len(things)} {kind}" for kind, things in left.items())
    text = (
        f"{len(soaked.outcomes)} runs in {options.minutes:g} minutes, the first half of the time four at a"
        f" time, the second one after another.\n\n{ends(soaked.outcomes)}\n\n"
        f"{trained(soaked.outcomes)}Left over: {counts}.\n\n"
        f"{table_of_memory}\n"
    )
    if on_cluster and options.image:
        recording.publish("soak-real", text, record=options.record)
    elif on_cluster:
        recording.publish("soak-kubernetes", text, record=options.record)
    else:
        recording.publish("soak-local", text, record=options.record)
    for kind, things in left.items():
        for thing in things[:20]:
            print(f"left over, {kind}: {thing}")
    for what in grown:
        print(f"has grown: {what}")
    failed = [outcome for outcome in soaked.outcomes if outcome.problem]
    return 1 if failed or grown or any(left.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
