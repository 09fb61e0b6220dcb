"""Kills tasks of real runs at random moments, and reports whether a step was lost: `make chaos`.

Each run is submitted to the local backend, which restarts its tasks by the rules of their Jobs. During
training, one of its tasks gets a signal: SIGKILL for all of its processes ("kill"), or only for the one that
trains ("crash"); SIGTERM for its first process, as on a drained node; or SIGSTOP for the process that trains.
The run must end by itself, and its last checkpoint must have counted every step. In an elastic run workers
come and go meanwhile: some get a signal, and `scale` takes some away for good and adds others. So do the data
workers of a run with a data service, and its dispatcher gets a signal a few times. Of each pass through the
data no example may be visited twice, and only as many may be left out as the lost data workers had.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes, recording
from benchmarks.chaos_cases import (
    HELD,
    IN_FLIGHT,
    PACKED,
    ROWS,
    SIGNALS,
    STEPS,
    Case,
    cases,
    cluster_file,
    epochs_of,
    steps_of,
)
from benchmarks.measuring import ROOT, table
from worker.contract.records import Event, Failed, Progress, Record, Training

RUN_SECONDS = 300.0
"""Limit of a whole run. One takes 20 to 60 s on two cores, depending on the start of its processes."""
_POLL_SECONDS = 0.1
_DISPATCHER_SIGNALS = 4
"""Its Job waits twice as long before each new pod."""
_VISITS = (
    "import sys, tensorflow as tf\n"
    "for path in sys.argv[1:]:\n"
    "    name = '{}/.ATTRIBUTES/VARIABLE_VALUE'\n"
    "    of = {each: tf.train.load_variable(path, name.format(each))"
    " for each in ('visits', 'last_pass', 'passes')}\n"
    "    unfinished = int((of['last_pass'] < of['passes']).sum())\n"
    "    print('left out', int(of['passes'] * len(of['visits']) - of['visits'].sum()) - unfinished)\n"
)
_ITERATIONS = (
    "import sys, tensorflow as tf\n"
    "name = 'optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE'\n"
    "for path in sys.argv[1:]: print('iterations', int(tf.train.load_variable(path, name)))\n"
)


@dataclass
class Outcome:
    """The result of a run. `trained` is the number of steps in the last checkpoint, 0 before it is known.
    `losses` counts tasks that were hit or taken away while workers, or data workers, came and went.
    """

    case: Case
    directory: Path
    problem: str = ""
    checkpoint: Path | None = None
    trained: int = 0
    repeated: int = 0
    hit: bool = False
    losses: int = 0
    left_out: int = 0

    @property
    def due(self) -> int:
        """Returns the number of steps that the training has."""
        return epochs_of(self.case) * steps_of(self.case)

    @property
    def recovered(self) -> bool:
        """Returns whether it succeeded and no step or file is missing."""
        return not self.problem


class Trial:
    """One run in a directory of its own."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._environment = {**os.environ, "XDG_STATE_HOME": str(directory), "PYTHONPATH": str(ROOT)}
        longer = 2 * case.seconds if case.row.most else 0.0
        self._deadline = time.monotonic() + RUN_SECONDS + longer

    def run(self) -> Outcome:
        """Runs it to its end, sends the signal to the victim meanwhile, and leaves no process behind."""
        outcome = Outcome(self._case, self._directory)
        path = cluster_file(self._case, self._directory)
        started = self._launcher("submit", str(path), "--backend", "local", "--detach")
        if started.returncode != 0:
            outcome.problem = f"submit: {started.stderr.strip()}"
            return outcome
        try:
            outcome.hit = self._began() and (
                self._come_and_go(outcome) if self._case.row.most else self._hit()
            )
            waited = self._launcher("wait", "chaos", "--backend", "local")
            if waited.returncode != 0:
                outcome.problem = f"exit code {waited.returncode}: {self._failure()}"
        except subprocess.TimeoutExpired:
            outcome.problem = f"did not end within {RUN_SECONDS:.0f} s"
        self._examine(outcome)
        self._keep_logs()
        self._deadline = time.monotonic() + 60
        self._launcher("delete", "chaos", "--backend", "local")
        left = self._processes()
        processes.send(left, signal.SIGKILL)
        if left and not outcome.problem:
            outcome.problem = f"{len(left)} processes were left"
        return outcome

    def _launcher(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "launcher", *arguments],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=max(1.0, self._deadline - time.monotonic()),
            check=False,
        )

    def _began(self) -> bool:
        """Waits for the first steps. Returns False where the run ended before."""
        began = False
        while not any(record.event == Event.PROGRESS for record in self._records(self._primary)):
            alive = bool(self._processes())
            if time.monotonic() > self._deadline or (began and not alive):
                return False
            began = began or alive
            time.sleep(_POLL_SECONDS)
        return True

    def _come_and_go(self, outcome: Outcome) -> bool:
        """Has workers come and go for the case's time. Returns False where the run ended before."""
        chance, most = random.Random(str(self._directory.name)), self._case.row.most
        role, began = self._case.role, time.monotonic()
        until = began + self._case.seconds
        times = _DISPATCHER_SIGNALS if self._case.row.served else 0
        dispatcher_times = [began + self._case.seconds * (n + 0.5) / times for n in range(times)]
        while time.monotonic() < until:
            if not self._processes(*self._primary):
                return False
            worker = self._processes(role, chance.randrange(most))
            if dispatcher_times and time.monotonic() > dispatcher_times[0]:
                dispatcher_times.pop(0)
                self._send(self._processes("dispatcher"), chance.choice(list(SIGNALS)))
                outcome.losses += 1
            elif chance.random() < 0.5 or not worker:
                wanted = chance.randint(1, most)
                outcome.losses += sum(bool(self._processes(role, index)) for index in range(wanted, most))
                self._launcher(
                    "scale", "chaos", "--role", role, "--workers", str(wanted), "--backend", "local"
                )
            else:
                self._send(worker, chance.choice(["kill", "term"]))
                outcome.losses += 1
            time.sleep(chance.uniform(2.0, 8.0))
        return True

    @staticmethod
    def _send(pids: Sequence[int], name: str) -> None:
        if name == "kill":
            processes.send(pids, signal.SIGKILL)
        elif name == "term":
            processes.send(pids[:1], signal.SIGTERM)
        else:  # the training process is the newest
            processes.send(pids[-1:], SIGNALS[name])

    def _hit(self) -> bool:
        """Waits for the case's time. Returns False where the victim ended before."""
        time.sleep(self._case.seconds)
        pids = self._processes(self._case.role, self._case.index)
        if not pids:
            return False
        self._send(pids, self._case.signal)
        return True

    def _examine(self, outcome: Outcome) -> None:
        checkpoints = {
            int(path.stem.partition("-")[2]): path.with_suffix("")
            for path in (self._directory / "model" / "checkpoints").glob("ckpt-*.index")
        }
        if checkpoints:
            outcome.checkpoint = checkpoints[max(checkpoints)]
        if not outcome.problem and (not checkpoints or max(checkpoints) != epochs_of(self._case)):
            outcome.problem = f"the last checkpoint is {max(checkpoints, default=0)}"
        export = self._directory / "model" / "export" / "1"
        if not outcome.problem and not (export / "saved_model.pb").is_file():
            outcome.problem = "nothing was exported"
        outcome.repeated = repeated(self._records(self._primary))

    @property
    def _primary(self) -> tuple[str, int]:
        return next(iter(self._case.row.replicas)), 0

    def _records(self, task: tuple[str, int]) -> list[Record]:
        """Returns the records of all attempts in order."""
        role, index = task
        logs = self._logs().glob(f"chaos-{role}-{index}/log.*")
        records = []
        for log in sorted(logs, key=lambda path: int(path.suffix[1:])):
            lines = log.read_text(errors="replace").splitlines()
            records += [record for line in lines if (record := Record.parse(line))]
        return records

    def _failure(self) -> str:
        for role, count in self._case.row.replicas.items():
            for index in range(count):
                for record in self._records((role, index)):
                    if isinstance(record.content, Failed):
                        return f"{role} {index}: {record.content.message}"
        return "no task said why"

    def _logs(self) -> Path:
        return self._directory / "tf-launcher" / "runs" / "default" / "chaos" / "pods"

    def _keep_logs(self) -> None:
        for log in self._logs().glob("*/log.*"):
            shutil.copy(log, self._directory / f"{log.parent.name}.{log.name}")

    def _processes(self, role: str = "", index: int = 0) -> list[int]:
        """Returns the processes of the run's tasks, or of one task, the container's first process first."""
        task = [f"TF_LAUNCHER_ROLE={role}", f"TASK_INDEX={index}"] if role else []
        return processes.with_environment(f"TF_LAUNCHER_CONFIG={self._directory}/", *task)


def repeated(records: Sequence[Record]) -> int:
    """Returns the number of steps that were repeated although a checkpoint had them.

    When a step of an epoch is reported, the checkpoint before it is written.
    """
    held = repeated = 0
    for record in records:
        match record.content:
            case Training(initial_epoch=epoch):
                repeated += max(0, held - epoch) * STEPS
            case Progress(epoch=epoch):
                held = max(held, epoch - 1)
    return repeated


def count_steps(outcomes: Sequence[Outcome]) -> None:
    """Reads the optimizers' numbers of steps, and compares them with the expected ones."""
    read = [outcome for outcome in outcomes if outcome.checkpoint is not None]
    if not read:
        return
    command = [sys.executable, "-c", _ITERATIONS, *(str(outcome.checkpoint) for outcome in read)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for outcome, number in zip(read, re.findall(r"^iterations (\d+)$", done.stdout, re.M), strict=True):
        outcome.trained = int(number)
        most = outcome.due
        if outcome.case.row.strategy == "ParameterServer":
            # A lost worker may have done a step without reporting it.
            most += IN_FLIGHT + PACKED * outcome.losses
        if not outcome.problem and not outcome.due <= outcome.trained <= most:
            outcome.problem = f"{outcome.trained} steps trained, {outcome.due} due"
        if not outcome.problem and outcome.repeated:
            outcome.problem = f"{outcome.repeated} steps trained again that a checkpoint held"
    count_visits([outcome for outcome in read if outcome.case.row.served])


def count_visits(outcomes: Sequence[Outcome]) -> None:
    """Reads how many examples the passes through the data have left out. A second visit in one pass counts as
    the begin of another, which then lacks nearly all of them.
    """
    if not outcomes:
        return
    command = [sys.executable, "-c", _VISITS, *(str(outcome.checkpoint) for outcome in outcomes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for outcome, number in zip(outcomes, re.findall(r"^left out (-?\d+)$", done.stdout, re.M), strict=True):
        outcome.left_out = int(number)
        most = HELD * outcome.losses
        print(f"{outcome.case.row.name}: {number} visits left out, {outcome.losses} losses", file=sys.stderr)
        if not outcome.problem and not 0 <= outcome.left_out <= most:
            outcome.problem = f"{number} visits left out, with {outcome.losses} losses at most {most}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Returns a table with the results of each strategy's and victim's runs."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        case = outcome.case
        groups.setdefault((case.row.name, f"{case.victim} {case.signal}"), []).append(outcome)
    rows = []
    for (name, victim), group in groups.items():
        trained = sorted({outcome.trained for outcome in group})
        shown = str(trained[0]) if len(trained) == 1 else f"{trained[0]} to {trained[-1]}"
        rows.append(
            [
                name,
                victim,
                str(len(group)),
                str(sum(outcome.hit for outcome in group)),
                str(sum(outcome.recovered for outcome in group)),
                shown,
                str(group[0].due),
                str(sum(outcome.repeated for outcome in group)),
            ]
        )
    heads = ["strategy", "victim", "runs", "hit", "recovered", "trained", "due", "repeated"]
    return table(heads, sorted(rows))


def run(todo: Sequence[Case], root: Path, at_a_time: int) -> list[Outcome]:
    """Runs all cases; prints a line on standard error for each that has ended."""

    def trial(number: int, case: Case) -> Outcome:
        directory = root / f"{number}-{case.row.strategy}-{case.row.style}-{case.role}-{case.signal}"
        directory.mkdir()
        began = time.monotonic()
        outcome = Trial(case, directory).run()
        ending = outcome.problem or ("recovered" if outcome.hit else "was over before")
        seconds = time.monotonic() - began
        print(
            f"{case.row.name}: {case.victim} {case.signal} at {case.seconds:.1f} s: {ending}"
            f" ({seconds:.0f} s)",
            file=sys.stderr,
            flush=True,
        )
        return outcome

    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        outcomes = list(pool.map(trial, range(len(todo)), todo))
    count_steps(outcomes)
    return outcomes


def main() -> int:
    """Returns exit code 1 where a run did not recover."""
    parser = recording.parser("benchmarks.chaos", str(__doc__), 20)
    parser.add_argument("--seed", type=int, default=0, help="the same seed hits the same tasks (%(default)s)")
    parser.add_argument(
        "--strategy",
        action="append",
        choices=[*sorted({row.strategy for row in ROWS}), *(row.name for row in ROWS)],
        metavar="NAME",
        help="only this one, as in the table; may be repeated",
    )
    parser.add_argument("--at-a-time", type=int, default=2, help="runs (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the runs' directories")
    options = parser.parse_args()
    wanted = options.strategy or [row.name for row in ROWS]
    rows = [row for row in ROWS if row.name in wanted or row.strategy in wanted]
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    outcomes = run(
        [case for row in rows for case in cases(row, options.rounds, options.seed)], root, options.at_a_time
    )
    text = f"{options.rounds} runs of each strategy.\n\n{summary(outcomes)}"
    recording.publish("chaos", text, record=options.record)
    failed = [outcome for outcome in outcomes if not outcome.recovered]
    for outcome in failed:
        case = outcome.case
        print(f"not recovered: {case.row.name}, {case.victim} {case.signal}: {outcome.problem}")
        print(f"  {outcome.directory}")
    if not failed and not options.keep:
        shutil.rmtree(root)
    else:
        print(f"the runs' files: {root}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
