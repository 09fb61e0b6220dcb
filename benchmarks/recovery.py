"""Seconds from the kill (SIGKILL) of a task to the first step after it, against the bare minimum.

The minimum is what TensorFlow itself takes. It is measured with the same cluster of processes, started by
hand, which run only `benchmarks/programs/bare.py`; tasks that must restart do so at the moment of the kill.
On Kubernetes the same script is the plain command of the same Jobs, so the minimum includes a new pod.

A task is killed in two ways: with its pod, which its Job replaces (on this machine `restartsInPlace: 0`, so
that no copies in memory are kept); and "in its pod", the training process alone, which the runtime starts
again there. On Kubernetes a pod is also deleted, as a drain of its node does it: the task saves and leaves
within the pod's grace. Nothing of TensorFlow's own does the same, so that has no minimum.

The epoch takes ten minutes. On this machine the same kills come to `Model.fit` with TensorFlow's
BackupAndRestore, too (`benchmarks/programs/backed_up.py`), whose processes are all started again at once.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import recording
from benchmarks.measuring import table
from benchmarks.recovery_runs import Backup, ByHand, Shape, Submitted, Task, Training
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
KILLED = tuple(SHAPES)
SHAPES += [replace(shape, in_place=True, elastic=shape.has_generations, joins=None) for shape in KILLED]
DELETED = [replace(shape, deleted=True, elastic=shape.has_generations, joins=None) for shape in KILLED]
"""On Kubernetes alone."""
EPOCH_STEPS = 24_000
"""Ten minutes of steps."""
BACKUPS = {
    "by the epoch, of 10 s": Backup("epoch", 400),
    "every 100 steps, epoch of 10 min": Backup("100", EPOCH_STEPS),
    "by the epoch, of 10 min": Backup("epoch", EPOCH_STEPS),
}
BACKED_UP = [
    replace(KILLED[0], victims=[("ps", 0)], elastic=False, joins=None),
    replace(KILLED[1], victims=[("worker", 1)]),
    KILLED[3],
]
BACKED_UP_SECONDS = 13.0
"""Of training before a kill: by its epoch of 10 s it has one backup then."""
BACKOFFS = {"local": Backoff(), "kubernetes": Backoff(10.0, 600.0)}
SETTLE_SECONDS = 6.0
"""Seconds of training before each kill: the training goes on from a copy in memory, for its epoch takes ten
minutes, or ten seconds where each is evaluated.
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
    lost_steps: list[int] = field(default_factory=list)
    lost_seconds: list[float] = field(default_factory=list)
    replacements: list[tuple[float, float, float, float]] = field(default_factory=list)


class Recovery(NamedTuple):
    """From a kill: seconds to the recovery, the longest time without a step until then, and the steps that
    were done a second time, with the seconds of work that these had been.
    """

    seconds: float
    pause: float
    lost_steps: int
    lost_seconds: float
    replacement: tuple[float, float, float, float] | None = None
    """Of a deleted pod, in seconds: until it had ended, another was made, that one ran, and its task or the
    run went on.
    """


@dataclass
class Joined:
    """What was measured of a worker that was added, a number for each round: seconds from the command to its
    first step, from the moment at which it could train to its first step, and the longest time meanwhile
    without a step.
    """

    asked: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)


def kills(training: Training, shape: Shape, settle: float, joined: Joined | None = None) -> list[Recovery]:
    """Returns the recovery from each victim's kill. At the end it adds a worker, and what that takes to
    `joined`.
    """
    marks, measured = training.marks, []
    with training:
        began = until(training, partial(marks.first, "step", 0.0))
        for victim in shape.victims:
            if victim[0] == "evaluator":
                began = max(began, until(training, partial(marks.first, "evaluated", 0.0, victim)))
            until(training, partial(marks.first, "step", began + settle))
            killed = training.kill(victim)
            begun, began = began, until(training, partial(marks.recovered, shape, victim, killed))
            lost = marks.lost(begun, killed, began) if shape.repeats(victim) else (0, 0.0)
            took = Recovery(began - killed, marks.pause(killed, began), *lost)
            measured.append(took._replace(replacement=_replacement(training, killed, began)))
        if joined is not None and shape.joins is not None and isinstance(training, Submitted):
            until(training, partial(marks.first, "step", began + settle))
            asked = training.add(shape.joins)
            ready = until(training, partial(marks.first, "ready", asked, shape.joins))
            stepped = until(training, partial(marks.first, "step", asked, shape.joins))
            joined.asked.append(stepped - asked)
            joined.ready.append(stepped - ready)
            joined.pause.append(marks.pause(asked, stepped))
    return measured


def _replacement(training: Training, killed: float, began: float) -> tuple[float, float, float, float] | None:
    if not isinstance(training, Submitted) or training.replacement is None:
        return None
    times = training.replacement.result()
    points = (killed, times.ended, times.made, times.ran, max(began, times.ran))
    first, second, third, fourth = (later - earlier for earlier, later in itertools.pairwise(points))
    return first, second, third, fourth


def until(training: Training, known: Callable[[], float | None]) -> float:
    """Returns what `known` returns as soon as that is a time, in seconds since the epoch. Raises RuntimeError
    where nothing comes.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        training.look()
        if (moment := known()) is not None:
            return moment
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"nothing came within {LIMIT_SECONDS:.0f} s; last: {training.marks.events[-3:]}")


def measure(
    shape: Shape,
    backend: str,
    image: str,
    alone: bool,
    taken: dict[tuple[str, Task], Measured],
    joined: dict[str, Joined],
) -> None:
    """Adds the measurements of a round to `taken`, by strategy and victim, and to `joined`, by strategy. The
    launcher and, unless it is `alone`, the minimum take turns. Raises RuntimeError where a run does not
    recover.
    """
    keeps_addresses = backend == "kubernetes" and shape.strategy == "ParameterServer" and not shape.in_place
    settle = GRPC_SECONDS if keeps_addresses and not shape.deleted else SETTLE_SECONDS
    # In their pods the least is the same, but for a cluster's delays.
    alone = alone or shape.deleted or (shape.in_place and backend == "local")
    for least in (False,) if alone else (False, True):
        with tempfile.TemporaryDirectory(prefix="recovery-") as name:
            directory = Path(name)
            training: Training
            if least and backend == "local":
                training = ByHand(shape, directory)
            else:
                training = Submitted(shape, directory, backend, image, bare=least)
            added = joined.setdefault(shape.name, Joined()) if shape.joins and not least else None
            recoveries = kills(training, shape, settle, added)
        for victim, recovery in zip(shape.victims, recoveries, strict=True):
            kept = taken.setdefault((shape.name, victim), Measured())
            (kept.minimum if least else kept.recovery).append(recovery.seconds)
            if not least:
                kept.pause.append(recovery.pause)
                kept.lost_steps.append(recovery.lost_steps)
                kept.lost_seconds.append(recovery.lost_seconds)
                kept.replacements += filter(None, [recovery.replacement])
            how = "at the least" if least else "recovered"
            print(
                f"{shape.name} {victim[0]} {victim[1]}: {how} {recovery.seconds:.2f} s,"
                f" longest pause {recovery.pause:.2f} s, {recovery.lost_steps} steps lost,"
                f" {recovery.lost_seconds:.2f} s of work"
                + ("" if recovery.replacement is None else f", {_spans(recovery.replacement)}"),
                file=sys.stderr,
            )


def _spans(times: Sequence[float]) -> str:
    words = ("until it had ended", "until another was made", "until that ran", "until the step")
    return ", ".join(f"{time:.2f} s {word}" for time, word in zip(times, words, strict=True))


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


def comparison(strategies: Sequence[str], taken: dict[tuple[str, Task], Measured], rounds: int) -> str:
    """Measures BackupAndRestore, and returns a table of it beside what the launcher's runs have lost."""
    rows = []
    for shape in BACKED_UP:
        if shape.strategy not in strategies:
            continue
        for how, backup in BACKUPS.items():
            measured = Measured()
            for _ in range(rounds):
                with tempfile.TemporaryDirectory(prefix="recovery-") as name:
                    training = ByHand(shape, Path(name), backup)
                    for each in kills(training, shape, BACKED_UP_SECONDS):
                        measured.recovery.append(each.seconds)
                        measured.lost_steps.append(each.lost_steps)
                        measured.lost_seconds.append(each.lost_seconds)
            rows.append(_lost(f"{shape.strategy}: BackupAndRestore {how}", [measured]))
            print(*rows[-1], file=sys.stderr)
        for kind in (shape.strategy, f"{shape.strategy}, in its pod"):
            measurements = [taken.get((kind, victim), Measured()) for victim in dict.fromkeys(shape.victims)]
            if any(each.recovery for each in measurements):
                rows.append(_lost(f"{kind}: the launcher, epoch of 10 min", measurements))
    heads = ("killed", "first step after, s", "steps lost", "work lost, s", "at most, s")
    return (
        f"TensorFlow's BackupAndRestore: a kill comes {BACKED_UP_SECONDS:.0f} s after the training went on."
        " By the epoch it costs all that was done of the epoch: in one of ten minutes, five minutes on "
        f"average.\n\n{table(heads, rows)}\n"
    )


def _lost(name: str, measurements: Sequence[Measured]) -> list[str]:
    recovery, steps, seconds = (
        [number for each in measurements for number in getattr(each, kind)]
        for kind in ("recovery", "lost_steps", "lost_seconds")
    )
    medians = (f"{statistics.median(recovery):.2f}", f"{statistics.median(steps):.0f}")
    return [name, *medians, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"]


def report(
    shapes: Sequence[Shape],
    taken: dict[tuple[str, Task], Measured],
    joined: dict[str, Joined],
    backend: str,
) -> str:
    """Returns the text of the tables."""
    rows, work, spans, pauses = [], [], [], []
    for shape in shapes:
        for victim, backoff in zip(shape.victims, backoffs(shape, BACKOFFS[backend]), strict=True):
            if not (measured := taken.get((shape.name, victim), Measured())).recovery:
                continue
            recovery = statistics.median(measured.recovery)
            role, index = victim
            name = f"{shape.name}: {role} {index}" if shape.replicas[role] > 1 else f"{shape.name}: {role}"
            times = (recovery, min(measured.recovery), max(measured.recovery))
            rows.append([name, f"{len(measured.recovery)}", *(f"{each:.2f}" for each in times)])
            as_pods = taken.get((replace(shape, in_place=False).name, victim), Measured())
            if minimum := measured.minimum or as_pods.minimum:
                # On a cluster, the Jobs of the minimum have the same delay.
                least = statistics.median(minimum) - (0 if backend == "local" else backoff)
                left = recovery - backoff
                rows[-1] += [f"{backoff:.0f}", f"{left:.2f}", f"{least:.2f}", f"{left / least:.2f}"]
            if shape.repeats(victim):
                steps, seconds = measured.lost_steps, measured.lost_seconds
                counts = (f"{statistics.median(steps):.0f}", f"{max(steps)}")
                work.append([name, *counts, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"])
            if measured.replacements:
                medians = map(statistics.median, zip(*measured.replacements, strict=True))
                spans.append([name, *(f"{each:.2f}" for each in medians)])
            if shape.strategy == "ParameterServer" and role == "worker":
                pauses.append(
                    f"{statistics.median(measured.pause):.2f} s (at most {max(measured.pause):.2f} s)"
                )
    heads = ["killed", "rounds", "first step after, s", "min", "max"]
    heads += ["back-off", "without it", "minimum", "ratio"]
    text = f"Backend {backend}, medians."
    if any(len(row) == len(heads) for row in rows):
        text += f" The ratio, of what is left without the back-off to the minimum, should be under {TARGET}."
    text += f"\n\n{table(heads[: len(rows[0])], rows)}\n"
    heads = ["work that was done twice", "steps", "at most", "seconds", "at most"]
    text += f"\n{table(heads, work)}\n"
    if spans:
        heads = ["seconds", "until the pod had ended", "another was made", "that ran", "the next step"]
        text += f"\n{table(heads, spans)}\n"
    for pause in pauses:
        text += (
            "\nA killed worker of ParameterServer is followed until its own first step. The other trained on:"
            f" the longest time without a step of anybody's was {pause}.\n"
        )
    for name, workers in joined.items():
        minima = taken[name, ("worker", 1)].minimum
        if not (minima and workers.asked):
            continue
        asked, ready = statistics.median(workers.asked), statistics.median(workers.ready)
        ratio = asked / statistics.median(minima)
        text += (
            f"\nA worker that `scale` adds to the run of {name} took its first step {ready:.2f} s"
            f" (at most {max(workers.ready):.2f} s) after it could train, and {asked:.2f} s after the"
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
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--deleted", action="store_true", help="delete pods, on Kubernetes; and nothing else")
    how.add_argument("--in-its-pod", action="store_true", help="kill training processes, and nothing else")
    parser.add_argument("--alone", action="store_true", help="without the minimum")
    parser.add_argument("--minutes", type=float, help="begin no round after so long")
    options = parser.parse_args()
    if options.backend == "kubernetes" and not options.image:
        parser.error("--backend kubernetes needs --image, a worker image that the cluster's nodes can have")
    if options.deleted and options.backend == "local":
        parser.error("--deleted needs --backend kubernetes: this machine has no pods to delete")
    tried = (
        DELETED if options.deleted else [each for each in SHAPES if each.in_place or not options.in_its_pod]
    )
    shapes = [shape for shape in tried if shape.strategy in (options.strategy or shape.strategy)]
    taken: dict[tuple[str, Task], Measured] = {}
    joined: dict[str, Joined] = {}
    failed: list[str] = []
    until = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    for round_, shape in itertools.product(range(1, options.rounds + 1), shapes):
        try:
            if time.monotonic() < until:
                measure(shape, options.backend, options.image, options.alone, taken, joined)
        except LauncherError as error:
            raise SystemExit(f"error: {error}") from None
        except RuntimeError as error:
            failed.append(f"round {round_} of {shape.name}: {error}")
            print(failed[-1], file=sys.stderr)
    if not taken:
        raise SystemExit("error: every round failed")
    text = report(shapes, taken, joined, options.backend)
    if options.backend == "local":
        text += "\n" + comparison(
            options.strategy or [shape.strategy for shape in BACKED_UP], taken, options.rounds
        )
    text += "".join(f"\nFailed: {each}\n" for each in failed)
    if options.backend == "local":
        recording.publish("recovery-local", text, record=options.record)
    elif options.deleted:
        recording.publish("recovery-deleted", text, record=options.record)
    else:
        recording.publish("recovery-kubernetes", text, record=options.record)


if __name__ == "__main__":
    main()
