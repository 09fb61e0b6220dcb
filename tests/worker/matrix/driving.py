"""Starts the processes that run the cells, and restarts them after a cell that ended them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tests.worker.cluster import Cluster, RunningTask
from tests.worker.matrix.cells import FOLDER, KERAS_3, PROGRAMS, STRATEGIES, STYLES, Cell, reference_style

SILENT_SECONDS = 700.0
"""The processes are ended after this time without a line about a cell; they end by themselves before."""
TAIL = 4000
"""Characters of a process' output in a report."""


class Placement(Protocol):
    """The devices of a column's tasks, where they are not those of cells.py."""

    def config(self, strategy: str, replicas: Mapping[str, int]) -> Mapping[str, Any]:
        """Returns fields of a run's configuration, `strategy_options` among them."""

    def variables(self, strategy: str, role: str, index: int) -> Mapping[str, str]:
        """Returns environment variables of a task."""


def run(
    strategy: str, cells: Sequence[Cell], folder: Path, placed: Placement | None = None
) -> dict[Cell, dict[str, Any]]:
    """Returns the outcome of each cell, all of `strategy`. `folder` is created, and only this
    call uses it.
    """
    folder.mkdir(parents=True)
    outcomes: dict[Cell, dict[str, Any]] = {}
    programs = [cell for cell in cells if cell.style in PROGRAMS]
    for style in STYLES:
        chosen = [cell for cell in cells if cell.style == style and style not in PROGRAMS]
        outcomes |= _to_the_end(strategy, chosen, folder, style, placed)
    outcomes |= _to_the_end(strategy, programs, folder, "programs", placed)
    if "evaluator" in STRATEGIES[strategy].replicas:
        trained = [cell for cell in cells if outcomes[cell]["outcome"] == "trained"]
        output = _pass(strategy, trained, folder, "scoring", placed) if trained else ""
        scored = {cell: line for cell, line in _lines(folder) if line["what"] == "scored"}
        for cell in trained:
            outcomes[cell]["scored"] = scored.get(cell, {"error": f"not scored: {output}", "evaluations": []})
    return outcomes


def _to_the_end(
    strategy: str, cells: Sequence[Cell], folder: Path, name: str, placed: Placement | None
) -> dict[Cell, dict[str, Any]]:
    """Runs all of `cells`, however many of them end their process.

    A cell whose task reports the loss of another one gets a second try, as from a Job: on a busy machine a
    process may miss its heartbeats.
    """
    outcomes: dict[Cell, dict[str, Any]] = {}
    tried_again: set[Cell] = set()
    while left := [cell for cell in cells if cell not in outcomes]:
        output = _pass(strategy, left, folder, name, placed)
        lines = [(cell, line) for cell, line in _lines(folder) if cell in cells]
        ended = [(cell, line) for cell, line in lines if line["what"] == "ended"]
        outcomes = {cell: line for cell, line in ended if cell not in tried_again}
        twice = [cell for cell, _ in ended]
        outcomes |= {cell: line for cell, line in ended if cell in tried_again and twice.count(cell) > 1}
        lost = {cell for cell, line in outcomes.items() if _lost_another(line)} - tried_again
        if lost:
            tried_again |= lost
            outcomes = {cell: line for cell, line in outcomes.items() if cell not in lost}
            continue
        missing = [cell for cell in left if cell not in outcomes]
        begun = {cell for cell, line in lines if line["what"] == "began"}
        if not missing or (len(missing) < len(left) and missing[0] not in begun):
            continue  # the cell before has ended its process too, and reported why
        message = f"the process ended: {output}"
        outcomes[missing[0]] = {"outcome": "failed", "message": message, "seconds": {}, "notices": []}
        _say(folder, missing[0], outcomes[missing[0]])
    return outcomes


def _lost_another(line: dict[str, Any]) -> bool:
    messages = [line.get("message", ""), *line.get("told", [])]
    return any("heartbeat timeout" in message for message in messages)


def _pass(
    strategy: str, cells: Sequence[Cell], folder: Path, name: str, placed: Placement | None = None
) -> str:
    """Runs `cells`. Returns the output of processes that ended too soon, or ""."""
    column = STRATEGIES[strategy]
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
    listed = directory / "cells.json"
    listed.write_text(json.dumps(cells))
    devices: Mapping[str, Any] = {"strategy_options": dict(column.options)}
    if placed is not None:
        devices = {
            **placed.config(column.strategy, column.replicas),
            "variables": partial(placed.variables, column.strategy),
        }
    cluster = Cluster(
        directory,
        column.replicas,
        column.strategy,
        source=FOLDER,
        **devices,
        starting_deadline_seconds=600,
        stall_seconds=3600,
        chief_lost_seconds=600,
    )
    shapes = ",".join(cell.shape for cell in cells)
    asked = {"strategy": strategy, "folder": str(folder), "shapes": shapes}
    if name == "function":
        cluster.config = replace(cluster.config, parameters=asked)
    if name in ("script", "function"):
        # As in a pod, the process starts in the program's folder.
        shutil.copytree(FOLDER, directory, dirs_exist_ok=True)
    commands: dict[str, tuple[str, ...]] = {
        "programs": ("-m", "tests.worker.matrix.running", str(listed), str(folder)),
        "scoring": ("-m", "tests.worker.matrix.scoring", str(listed), str(folder)),
        "script": ("-m", "worker", "--", "script.py", *(f"--{key}={value}" for key, value in asked.items())),
        "function": ("-m", "worker", "--", "-m", "worker.function", "script:train"),
    }
    try:
        tasks: list[RunningTask] = []
        for role, index in cluster.addresses:
            if (name == "scoring") != (role == "evaluator"):
                continue
            serves = column.strategy == "ParameterServer" and role in ("worker", "ps")
            task = cluster.start(role, index, python=("-m", "worker") if serves else commands[name])
            if not serves:
                tasks.append(task)
        return _follow(tasks, folder / "outcomes.jsonl")
    finally:
        cluster.stop()


def _follow(tasks: Sequence[RunningTask], outcomes: Path) -> str:
    heard, size = time.monotonic(), 0
    while time.monotonic() - heard < SILENT_SECONDS:
        codes = [task.process.poll() for task in tasks]
        if all(code == 0 for code in codes):
            return ""
        if any(code for code in codes) and (codes[0] is not None or time.monotonic() - heard > 20.0):
            break
        now = outcomes.stat().st_size if outcomes.exists() else 0
        if now != size:
            heard, size = time.monotonic(), now
        time.sleep(0.2)
    for task in tasks:
        task._reader.join(1.0)
    codes = [task.process.poll() for task in tasks]
    return f"exit codes {codes}\n" + "\n".join(f"--- {task.name}\n{task.output[-TAIL:]}" for task in tasks)


def _lines(folder: Path) -> list[tuple[Cell, dict[str, Any]]]:
    path = folder / "outcomes.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    documents = [json.loads(line) for line in lines]
    return [(Cell(*document["cell"]), document) for document in documents]


def _say(folder: Path, cell: Cell, outcome: dict[str, Any]) -> None:
    with (folder / "outcomes.jsonl").open("a") as file:
        file.write(json.dumps({"cell": list(cell), "what": "ended", **outcome}) + "\n")


def references(folder: Path, cells: Iterable[Cell]) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the results of the plain trainings that the cells are compared with, by shape and style; they
    are computed once in `folder`, which several processes with the same cells may share.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reference.jsonl"
    with _locked(folder / "lock"):
        if not path.exists():
            wanted = sorted({f"{cell.shape}.{reference_style(cell)}" for cell in cells})
            of_keras_3 = [name for name in wanted if name.endswith(f".{KERAS_3}")]
            of_keras_2 = [name for name in wanted if name not in of_keras_3]
            lines = [*_plain(folder, of_keras_2, "1"), *_plain(folder, of_keras_3, "0")]
            path.write_text("\n".join(lines) + "\n")
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    return {(document["shape"], document["style"]): document for document in documents}


def _plain(folder: Path, names: Sequence[str], legacy: str) -> list[str]:
    if not names:
        return []
    command = [sys.executable, "plain.py", str(folder), str(folder / "data"), *names]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": legacy}
    environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=1200)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"shape"')]
    if len(lines) != len(names):
        raise AssertionError(f"plain.py ended with {done.returncode}:\n{done.stderr[-TAIL:]}")
    return lines


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
