"""Seconds from the kill (SIGKILL) of a task to the first step after it, against the bare minimum.

The minimum is what TensorFlow itself takes. It is measured with the same cluster of processes, started by
hand, which run only `benchmarks/programs/bare.py`; tasks that must restart do so at the moment of the kill.
On Kubernetes the same script is the plain command of the same Jobs, so the minimum includes a new pod.

A task is killed in two ways: with its pod, which its Job replaces (`restartsInPlace: 0`); and "in its pod",
the training process alone, which the runtime starts again there.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks import recording
from benchmarks.measuring import table
from benchmarks.recovery_runs import ByHand, Shape, Submitted, Task, Training
from launcher.backends.local.supervisor.jobs import Backoff
from launcher.errors import LauncherError

SHAPES = [
    Shape(
        "ParameterServer",
        {"chief": 1, "worker": 2, "ps": 1},
        [("worker", 1), ("chief", 0), ("ps", 0)],
        elastic=True,
        joins=("worker", 2),
    ),
    Shape("MultiWorkerMirrored", {"worker": 2}, [("worker", 1), ("worker", 0)]),
    Shape("OneDevice", {"chief": 1, "evaluator": 1}, [("evaluator", 0), ("chief", 0)]),
    Shape("Mirrored", {"chief": 1}, [("chief", 0)]),
    Shape(
        "MultiWorkerMirrored",
        {"chief": 1, "worker": 2},
        [("worker", 1)],
        elastic=True,
        joins=("worker", 2),
    ),
]
SHAPES += [replace(shape, in_place=True, elastic=shape.has_generations, joins=None) for shape in SHAPES]
BACKOFFS = {"local": Backoff(), "kubernetes": Backoff(10.0, 600.0)}
SETTLE_SECONDS = 3.0
"""Seconds of training before each kill: longer than an epoch, so that there is a checkpoint to
resume from.
"""
GRPC_SECONDS = 35.0
"""The same where other tasks live on and addresses change: longer than the 30 s for which gRPC uses an
address that it has looked up.
"""
LIMIT_SECONDS = 300.0
"""Limit for a run to train, or to train again."""
TARGET = 1.5
_POLL_SECONDS = 0.02


@dataclass
class Measured:
    """The results of one victim, a number for each round. `backoff` is the delay that the
    manifests ask for.
    """

    backoff: float = 0.0
    recovery: list[float] = field(default_factory=list)
    minimum: list[float] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)


@dataclass
class Joined:
    """What was measured of a worker that was added, a number for each round: seconds from the command to its
    first step, from the moment at which it could train to its first step, and the longest time meanwhile
    without a step.
    """

    asked: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)


def kills(
    training: Training, shape: Shape, settle: float, joined: Joined | None = None
) -> list[tuple[float, float]]:
    """Returns for each victim the seconds to its recovery, and the longest time without a step until then.
    At the end it adds a worker, and what that takes to `joined`.
    """
    marks, measured = training.marks, []
    with training:
        began = _until(training, partial(marks.first, "step", 0.0))
        for victim in shape.victims:
            if victim[0] == "evaluator":
                began = max(began, _until(training, partial(marks.first, "evaluated", 0.0, victim)))
            _until(training, partial(marks.first, "step", began + settle))
            killed = training.kill(victim)
            began = _until(training, partial(marks.recovered, shape, victim, killed))
            measured.append((began - killed, marks.pause(killed, began)))
        if joined is not None and shape.joins is not None and isinstance(training, Submitted):
            _until(training, partial(marks.first, "step", began + settle))
            asked = training.add(shape.joins)
            ready = _until(training, partial(marks.first, "ready", asked, shape.joins))
            stepped = _until(training, partial(marks.first, "step", asked, shape.joins))
            joined.asked.append(stepped - asked)
            joined.ready.append(stepped - ready)
            joined.pause.append(marks.pause(asked, stepped))
    return measured


def _until(training: Training, known: Callable[[], float | None]) -> float:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        training.look()
        if (found := known()) is not None:
            return found
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"nothing came within {LIMIT_SECONDS:.0f} s; last: {training.marks.found[-3:]}")


def measure(
    shape: Shape,
    backend: str,
    image: str,
    rounds: int,
    taken: dict[tuple[str, Task], Measured],
    joined: dict[str, Joined],
) -> None:
    """Adds measurements to `taken`, by strategy and victim, and to `joined`, by strategy. The launcher and
    the minimum take turns.
    """
    keeps_addresses = backend == "kubernetes" and shape.strategy == "ParameterServer" and not shape.in_place
    settle = GRPC_SECONDS if keeps_addresses else SETTLE_SECONDS
    for round_ in range(1, rounds + 1):
        for least in (False, True):
            with tempfile.TemporaryDirectory(prefix="recovery-") as name:
                directory = Path(name)
                training: Training
                if least and backend == "local":
                    training = ByHand(shape, directory)
                else:
                    training = Submitted(shape, directory, backend, image, bare=least)
                added = joined.setdefault(shape.name, Joined()) if shape.joins and not least else None
                found = kills(training, shape, settle, added)
            for victim, (seconds, pause) in zip(shape.victims, found, strict=True):
                kept = taken.setdefault((shape.name, victim), Measured())
                (kept.minimum if least else kept.recovery).append(seconds)
                if not least:
                    kept.pause.append(pause)
                how = "at the least" if least else "recovered"
                print(
                    f"round {round_}, {shape.name} {victim[0]} {victim[1]}: {how} {seconds:.2f} s,"
                    f" longest pause {pause:.2f} s",
                    file=sys.stderr,
                )


def backoffs(shape: Shape, backoff: Backoff) -> list[float]:
    """Returns for each victim the longest delay of the tasks that restart. In their pods they have none, and
    nor where the others go on without the victim.
    """
    if shape.in_place or shape.has_generations:
        return [0.0] * len(shape.victims)
    failures: dict[Task, int] = dict.fromkeys(shape.tasks, 0)
    delays = []
    for victim in shape.victims:
        for lost in shape.loses(victim):
            failures[lost] += 1
        delays.append(max(backoff.delay(failures[lost]) for lost in shape.loses(victim)))
    return delays


def report(
    shapes: Sequence[Shape],
    taken: dict[tuple[str, Task], Measured],
    joined: dict[str, Joined],
    backend: str,
    rounds: int,
) -> str:
    """Returns the text of both tables."""
    rows = []
    pauses = []
    for shape in shapes:
        for victim, backoff in zip(shape.victims, backoffs(shape, BACKOFFS[backend]), strict=True):
            found = taken[shape.name, victim]
            recovery, minimum = statistics.median(found.recovery), statistics.median(found.minimum)
            # On a cluster, the Jobs of the minimum have the same delay.
            least = minimum if backend == "local" else minimum - backoff
            role, index = victim
            name = f"{role} {index}" if shape.replicas[role] > 1 else role
            rows.append(
                (
                    f"{shape.name}: {name}",
                    f"{recovery:.2f}",
                    f"{min(found.recovery):.2f}",
                    f"{max(found.recovery):.2f}",
                    f"{backoff:.0f}",
                    f"{recovery - backoff:.2f}",
                    f"{least:.2f}",
                    f"{(recovery - backoff) / least:.2f}",
                )
            )
            if shape.strategy == "ParameterServer" and role == "worker":
                pauses.append(f"{statistics.median(found.pause):.2f} s (at most {max(found.pause):.2f} s)")
    heads = ("killed", "first step after, s", "min", "max", "back-off", "without it", "minimum", "ratio")
    text = (
        f"Backend {backend}, medians of {rounds} rounds. The ratio, of what is left without the back-off to"
        f" the minimum, should be under {TARGET}.\n\n{table(heads, rows)}\n"
    )
    for pause in pauses:
        text += (
            "\nA killed worker of ParameterServer is followed until its own first step. The other trained on:"
            f" the longest time without a step of anybody's was {pause}.\n"
        )
    for name, workers in joined.items():
        (minima,) = (taken[key].minimum for key in taken if key[0] == name and key[1][0] == "worker")
        after, ready = statistics.median(workers.asked), statistics.median(workers.ready)
        ratio = after / statistics.median(minima)
        text += (
            f"\nA worker that `scale` adds to the run of {name} took its first step {ready:.2f} s"
            f" (at most {max(workers.ready):.2f} s) after it could train, and {after:.2f} s after the"
            f" command: {ratio:.2f} times the minimum of the killed worker. The longest time without a step"
            f" of anybody's was {max(workers.pause):.2f} s.\n"
        )
    return text


def main() -> None:
    """Measures and prints."""
    parser = recording.parser("benchmarks.recovery", str(__doc__), 3)
    parser.add_argument("--backend", choices=[*BACKOFFS], default="local", help="(%(default)s)")
    parser.add_argument("--image", default="", help="of the worker, on the kubeconfig's cluster")
    parser.add_argument(
        "--strategy",
        action="append",
        choices=sorted({shape.strategy for shape in SHAPES}),
        help="only this one",
    )
    options = parser.parse_args()
    if options.backend == "kubernetes" and not options.image:
        parser.error("--backend kubernetes needs --image, a worker image that the cluster's nodes can have")
    shapes = [shape for shape in SHAPES if shape.strategy in (options.strategy or shape.strategy)]
    taken: dict[tuple[str, Task], Measured] = {}
    joined: dict[str, Joined] = {}
    try:
        for shape in shapes:
            measure(shape, options.backend, options.image, options.rounds, taken, joined)
    except (LauncherError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from None
    text = report(shapes, taken, joined, options.backend, options.rounds)
    if options.backend == "local":
        recording.publish("recovery-local", text, record=options.record)
    else:
        recording.publish("recovery-kubernetes", text, record=options.record)


if __name__ == "__main__":
    main()
