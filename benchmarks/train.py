"""What the worker runtime costs a training: its steps a second and its memory, against the loops of
TensorFlow's tutorials written out by hand, with the same model and data on the same cores.

    python -m benchmarks.train [ROUNDS [TRAINING ...]]

A TRAINING is ps-loop, ps-fit, multi-loop, multi-fit, mirrored-loop or mirrored-fit; without one, all of them.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.first_step import free_ports
from benchmarks.measuring import ENVIRONMENT, ROOT, table
from worker.contract import Env, Event, Record, RunConfig, pod_name

PROGRAMS = ROOT / "benchmarks" / "programs"
PACKED = 10
EPOCHS = 5
SECONDS = 600
_POLL_SECONDS = 0.2
_EPOCH = re.compile(r"epoch (\d+) at ([\d.]+)")


@dataclass(frozen=True)
class Training:
    """One strategy and loop. `steps` are those of an epoch."""

    strategy: str
    loop: str
    replicas: Mapping[str, int]
    steps: int
    options: Mapping[str, object] = field(default_factory=dict)


PARAMETER_SERVER = {"chief": 1, "worker": 2, "ps": 1}
TRAININGS = {
    "ps-loop": Training("ParameterServer", "loop", PARAMETER_SERVER, 1000),
    "ps-fit": Training("ParameterServer", "fit", PARAMETER_SERVER, 500),
    "multi-loop": Training("MultiWorkerMirrored", "loop", {"worker": 2}, 500),
    "multi-fit": Training("MultiWorkerMirrored", "fit", {"worker": 2}, 500),
    "mirrored-loop": Training("Mirrored", "loop", {"chief": 1}, 1000, {"logicalCpus": 2}),
    "mirrored-fit": Training("Mirrored", "fit", {"chief": 1}, 1000, {"logicalCpus": 2}),
}


@dataclass(frozen=True)
class Measured:
    """One run: steps a second after the first epoch, and each role's peak of resident memory in MB."""

    rate: float
    memory: Mapping[str, float]


def run(training: Training, packed: int | str, runtime: bool, directory: Path) -> Measured:
    """Trains once, by the runtime or by hand. Raises RuntimeError where a task fails."""
    tasks = [(role, index) for role, count in training.replicas.items() for index in range(count)]
    addresses = dict(zip(tasks, (f"127.0.0.1:{port}" for port in free_ports(len(tasks))), strict=True))
    cluster = {role: [addresses[role, i] for i in range(n)] for role, n in training.replicas.items()}
    if runtime:
        command = ["-m", "worker"]
        _configure(training, packed, addresses[tasks[0]], directory)
    else:
        command = [str(PROGRAMS / "tutorial.py"), training.strategy, training.loop]
        command += [str(number) for number in (packed, EPOCHS, training.steps)]
    with ExitStack() as stack:
        processes = {}
        for role, index in tasks:
            pod = pod_name("bench", role, index)
            (directory / pod).mkdir()
            log = stack.enter_context((directory / f"{pod}.log").open("wb"))
            environment = {
                **ENVIRONMENT,
                "PYTHONPATH": str(ROOT),
                "TF_USE_LEGACY_KERAS": "1",
                "TF_CPP_MIN_LOG_LEVEL": "2",
                Env.ROLE: role,
                Env.TASK_INDEX: str(index),
                Env.TASK_DIR: str(directory / pod),
            }
            if len(tasks) > 1:
                environment[Env.TF_CONFIG] = json.dumps(
                    {"cluster": cluster, "task": {"type": role, "index": index}}
                )
            if runtime:
                environment |= {Env.CONFIG: str(directory / "run.json"), Env.SOURCE: str(PROGRAMS)}
            processes[role, index] = subprocess.Popen(
                [sys.executable, *command], cwd=directory, env=environment, stdout=log, stderr=log
            )
        memory = _Memory({task: process.pid for task, process in processes.items()})
        try:
            for (role, index), process in processes.items():
                if not runtime and training.strategy == "ParameterServer" and role != "chief":
                    continue  # join() never returns
                if process.wait(SECONDS):
                    said = (directory / f"{pod_name('bench', role, index)}.log").read_text()
                    raise RuntimeError(f"{role} {index} ended with {process.returncode}:\n{said}")
        finally:
            peaks = memory.stop()
            for process in processes.values():
                process.kill()
                process.wait()
    first = pod_name("bench", *tasks[0])
    ends = _epoch_ends((directory / f"{first}.log").read_text())
    if len(ends) != EPOCHS:
        raise RuntimeError(f"{first} reported {len(ends)} of {EPOCHS} epochs")
    rates = [training.steps / (end - begin) for begin, end in itertools.pairwise(ends)]
    return Measured(statistics.median(rates), peaks)


def _configure(training: Training, packed: int | str, primary: str, directory: Path) -> None:
    parameters = {
        "epochs": EPOCHS,
        "stepsPerEpoch": training.steps,
        "globalBatchSize": 32,
        "stepsPerExecution": packed,
    }
    config = RunConfig(
        run="bench",
        strategy=training.strategy,
        strategy_options=training.options,
        entrypoint="small:ByLoss" if training.loop == "loop" else "small:ByFit",
        parameters=parameters,
        replicas=training.replicas,
        chief_address=None if len(training.replicas) == 1 and "chief" in training.replicas else primary,
        starting_deadline_seconds=SECONDS,
        stall_seconds=SECONDS,
        chief_lost_seconds=SECONDS,
    )
    (directory / "run.json").write_text(config.to_json())


def _epoch_ends(printed: str) -> list[float]:
    """In seconds since the epoch."""
    ends = []
    for line in printed.splitlines():
        record = Record.parse(line)
        if record is not None and record.event == Event.PROGRESS and record.fields["epoch_end"]:
            ends.append(record.time)
        elif (match := _EPOCH.fullmatch(line)) is not None:
            ends.append(float(match[2]))
    return ends


class _Memory:
    """Looks at the peaks of resident memory while the processes run: of each, and of what it has started."""

    def __init__(self, processes: Mapping[tuple[str, int], int]) -> None:
        self._processes = processes
        self._peaks: dict[int, float] = {}
        self._owners: dict[int, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """In MB by role: the mean of its tasks."""
        self._stopping.set()
        self._thread.join()
        totals: dict[str, float] = {}
        for pid, peak in self._peaks.items():
            totals[self._owners[pid]] = totals.get(self._owners[pid], 0.0) + peak
        counts = {role: sum(each == role for each, _ in self._processes) for role, _ in self._processes}
        return {role: total / counts[role] for role, total in totals.items()}

    def _watch(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            for (role, _), pid in self._processes.items():
                for each in _family(pid):
                    peak = _peak(each)
                    if peak is not None:
                        self._peaks[each], self._owners[each] = peak, role


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += _family(int(child))
        except OSError:
            continue
    return found


def _peak(pid: int) -> float | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else None


def main(rounds: int = 3, names: Sequence[str] = ()) -> None:
    """Measures in turns and prints."""
    variants: list[tuple[int | str, bool]] = [(PACKED, False), (PACKED, True), (1, False), ("auto", True)]
    speeds, memories = [], []
    for name in names or TRAININGS:
        training = TRAININGS[name]
        taken: dict[tuple[int | str, bool], list[Measured]] = {variant: [] for variant in variants}
        for _ in range(rounds):
            for packed, runtime in variants:
                with tempfile.TemporaryDirectory() as directory:
                    measured = run(training, packed, runtime, Path(directory))
                taken[packed, runtime].append(measured)
                by = "runtime" if runtime else "by hand"
                roles = ", ".join(f"{role} {peak:.0f} MB" for role, peak in measured.memory.items())
                print(f"{name}, {packed} steps a call, {by}: {measured.rate:.0f}/s; {roles}", file=sys.stderr)
        speeds += [
            _speed(name, taken[PACKED, False], taken[PACKED, True], f"{PACKED}", f"{PACKED}", "0.98"),
            _speed(
                name, taken[1, False], taken[("auto", True)], "1", "auto", "3" if name == "ps-loop" else ""
            ),
        ]
        memories += [
            _memory(name, role, taken[PACKED, False], taken[PACKED, True]) for role in training.replicas
        ]
    print(
        f"{os.cpu_count()} cores, {rounds} rounds, epochs 2 to {EPOCHS} of each run; medians, of ratios too."
        " Two workers where there are workers.\n"
    )
    heads = ("training", "by hand", "runtime", "by hand /s", "runtime /s", "ratio", "at least")
    print("Steps a second, with so many steps a call:\n")
    print(table(heads, speeds))
    print("\nPeak of resident memory, MB:\n")
    print(table(("training", "role", "by hand", "runtime", "ratio", "at most"), memories))


def _speed(
    name: str, hand: Sequence[Measured], runtime: Sequence[Measured], packed: str, ours: str, least: str
) -> Sequence[str]:
    ratios = [mine.rate / other.rate for mine, other in zip(runtime, hand, strict=True)]
    rates = [f"{statistics.median(run.rate for run in runs):.0f}" for runs in (hand, runtime)]
    return name, packed, ours, *rates, f"{statistics.median(ratios):.2f}", least


def _memory(name: str, role: str, hand: Sequence[Measured], runtime: Sequence[Measured]) -> Sequence[str]:
    ratios = [mine.memory[role] / other.memory[role] for mine, other in zip(runtime, hand, strict=True)]
    peaks = [f"{statistics.median(run.memory[role] for run in runs):.0f}" for runs in (hand, runtime)]
    return name, role, *peaks, f"{statistics.median(ratios):.3f}", "1.05"


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3, sys.argv[2:])
