"""One small run of `benchmarks.soak`, from its submission until it is deleted, and what befalls it."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import launcher
from benchmarks import clusters
from benchmarks.measuring import ENVIRONMENT, ROOT
from launcher.errors import ConflictError, LauncherError, NotFoundError
from launcher.run import Run

SECONDS = 900.0
"""For a whole run; a training takes 20 to 60 s, and minutes where it only gets what others leave."""
TASK_SECONDS = 2.0
GONE = "deleted"

FOREGROUND = {
    "submit killed": (signal.SIGKILL,),
    "Ctrl-C": (signal.SIGINT,),
    "Ctrl-C twice": (signal.SIGINT, signal.SIGINT),
}
"""What becomes of the `submit` that follows its run."""

LIMITS = {"minReplicas": 1, "maxReplicas": 3}
"""Of the workers that come and go."""


@dataclass(frozen=True)
class Training:
    """What a run trains by. `elastic`: its workers come and go."""

    strategy: str
    replicas: Mapping[str, int]
    spec: Mapping[str, Any] = field(default_factory=dict)
    elastic: bool = False

    def __str__(self) -> str:
        """As in `ParameterServer, elastic`."""
        return ", ".join([self.strategy, *["elastic"] * self.elastic, *self.spec])


TRAININGS = (
    Training("OneDevice", {"chief": 1, "evaluator": 1}),
    Training("Mirrored", {"chief": 1}),
    Training("CentralStorage", {"chief": 1}),
    Training("MultiWorkerMirrored", {"worker": 2}),
    Training("MultiWorkerMirrored", {"chief": 1, "worker": 2}, elastic=True),
    Training("ParameterServer", {"chief": 1, "worker": 2, "ps": 1}),
    Training("ParameterServer", {"chief": 1, "worker": 2, "ps": 1}, elastic=True),
    Training("OneDevice", {"chief": 1}, {"dataService": {"workers": 2}}),
)


class Place(Protocol):
    """Where the runs are. `ends` maps what may befall a run to the phases that it may come to."""

    backend: Literal["local", "kubernetes"]
    ends: Mapping[str, Sequence[str]]
    environment: dict[str, str]
    image: str

    def begun(self, run: Run, is_training: bool) -> None:
        """All of its tasks run."""

    def injure(self, kind: str, run: Run, chance: random.Random) -> None:
        """What only this place knows how to do."""

    def left(self) -> dict[str, list[str]]:
        """What there still is of all runs: by kind, each thing's name."""


@dataclass(frozen=True)
class Outcome:
    """What became of a run. `problem` is "" where it is what was to be expected."""

    kind: str
    training: Training | None
    phase: str
    seconds: float
    problem: str


def soak(place: Place, number: int, kind: str, *, is_training: bool) -> Outcome:
    """One run, which is gone at the end."""
    began = time.monotonic()
    chance = random.Random(number)
    training = chance.choice(TRAININGS) if is_training else None
    phase = problem = ""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        try:
            phase = _soak(place, Path(name), f"soak-{number}", kind, chance, training)
        except (LauncherError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            problem = f"{type(error).__name__}: {error}"
    if not problem and phase not in place.ends[kind]:
        problem = f"came to {phase}, expected {' or '.join(place.ends[kind])}"
    return Outcome(kind, training, phase, time.monotonic() - began, problem)


def _soak(
    place: Place, directory: Path, name: str, kind: str, chance: random.Random, training: Training | None
) -> str:
    file = _file(directory, name, place, chance, training)
    with contextlib.ExitStack() as stack:
        following: subprocess.Popen[bytes] | None = None
        if kind in FOREGROUND:
            command = ["submit", str(file), "--backend", place.backend]
            following = stack.enter_context(_process(place, command))
            run = _found(name, place, following)
        else:
            run = launcher.submit(file, backend=place.backend, detach=chance.random() < 0.5)
            if kind == "follower killed":
                following = stack.enter_context(_process(place, ["wait", name, "--backend", place.backend]))
        try:
            status = run.wait(SECONDS, until="running")
            if not status.ended:
                place.begun(run, training is not None)
            time.sleep(chance.uniform(0.0, 8.0 if training else TASK_SECONDS))
            if training is not None and training.elastic:
                with contextlib.suppress(ConflictError):  # it is over
                    run.scale(chance.randint(LIMITS["minReplicas"], LIMITS["maxReplicas"]))
            return _befall(place, kind, run, file, following, chance)
        finally:
            with contextlib.suppress(NotFoundError):
                run.delete()


def _befall(
    place: Place,
    kind: str,
    run: Run,
    file: Path,
    following: subprocess.Popen[bytes] | None,
    chance: random.Random,
) -> str:
    """What `kind` says, and then the end. Returns the phase."""
    if kind == "deleted":
        follower = threading.Thread(target=_follow, args=(run,))
        follower.start()
        run.delete()
        follower.join(SECONDS)
        if follower.is_alive():
            raise RuntimeError("who followed a run that was deleted goes on")
        return GONE
    if kind == "replaced":
        run = launcher.submit(file, backend=place.backend, replace=True)
    elif kind == "suspended":
        with contextlib.suppress(ConflictError):  # it is over
            run.suspend()
            time.sleep(chance.uniform(0.0, 1.0))
            run.resume()
    elif following is not None:
        for number in FOREGROUND.get(kind, (signal.SIGKILL,)):
            following.send_signal(number)
            time.sleep(0.2)
    elif kind != "nothing":
        place.injure(kind, run, chance)
    return str(run.wait(SECONDS).phase)


def _follow(run: Run) -> None:
    with contextlib.suppress(NotFoundError):
        for _ in run.logs(follow=True):
            pass


@contextlib.contextmanager
def _process(place: Place, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command of the launcher's; ended at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", *arguments],
        cwd=ROOT,
        env={**ENVIRONMENT, **place.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
        # Who was asked to leave, or whose run has gone, leaves.
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


def _found(name: str, place: Place, following: subprocess.Popen[bytes]) -> Run:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and following.poll() is None:
        with contextlib.suppress(NotFoundError):
            return launcher.find(name, backend=place.backend)
        time.sleep(0.05)
    raise RuntimeError(f"submit has made no run: exit code {following.poll()}")


def _file(directory: Path, name: str, place: Place, chance: random.Random, training: Training | None) -> Path:
    policy = {"backoffLimit": 10, "startingDeadlineSeconds": 120, "chiefLostSeconds": 120}
    spec: dict[str, Any] = {"runPolicy": policy, **({"image": place.image} if place.image else {})}
    roles: dict[str, Mapping[str, Any]] = {}
    if training is not None:
        strategy, replicas, source = training.strategy, dict(training.replicas), "chaos_program.py"
        spec |= training.spec
        if training.elastic:
            roles["worker"] = LIMITS
        spec["program"] = {
            "entrypoint": "chaos_program:Loop",
            "parameters": {
                "epochs": 3,
                "stepsPerEpoch": 40,
                "globalBatchSize": 8,
                "stepsPerExecution": 2,
                "stepMicroseconds": 25_000,
            },
        }
    else:
        strategy, source = "Custom", "soaked.py"
        replicas = {"chief": 1, "worker": chance.choice((1, 2, 4))}
        spec["command"] = ["python", "soaked.py", str(TASK_SECONDS)]
        spec["template"] = {"restartPolicy": "OnFailure"}
    on_host = place.backend == "local"
    file = clusters.write(
        directory, name, strategy, replicas, [clusters.PROGRAMS / source], spec, roles, on_host=on_host
    )
    assert shutil.disk_usage(directory).free > 1 << 30, "the disk is full"
    return file
