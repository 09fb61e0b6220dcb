"""The supervisors of an elastic collective, with training processes that only wait for one another."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.free_ports import free_addresses
from tests.worker.cluster import ROOT, RunningTask
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

STALL_SECONDS = 2

TASK = """\
import contextlib, json, os, pathlib, signal, socket, sys, threading, time
from worker.contract.run_config import ElasticWorkers
from worker.contract.exit_codes import ExitCode
from worker.peers import probes
from worker.collective.elastic_rendezvous import Elastic
from worker.process.watch import stalled
from worker.supervisor.supervisor import Limits, Work, supervise

role, index, own, chief, tensorflow, folder = sys.argv[1:]
name, folder = f"{role}-{index}", pathlib.Path(folder)

def answer(server):
    while True:
        with contextlib.suppress(OSError), server.accept()[0] as connection:
            connection.sendall(bytes(9))

def train(watch):
    found = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if "pods" not in found:
        watch.introduce({"run_id": "1", "tensorflow": tensorflow, "program": "", "gpus": 0})
        return ExitCode.DONE
    told = []
    signal.signal(signal.SIGUSR2, lambda *_: told.append(True))
    task, cluster = found["task"], found["cluster"]
    address = cluster[task["type"]][task["index"]]
    server = socket.create_server(probes.split(address))
    threading.Thread(target=answer, args=[server], daemon=True).start()
    others = [each for addresses in cluster.values() for each in addresses if each != address]
    while not (all(map(probes.connects, others)) or (folder / "end").exists()):
        time.sleep(0.05)
    watch.expect(stalled("training", STALL))
    watch.stepped()
    stop = folder / f"stop {cluster['chief'][0]}"
    while True:
        if (folder / f"hang {name}").exists():
            (folder / f"hang {name}").unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        lost = not all(map(probes.connects, others))
        if (folder / "end").exists():
            return ExitCode.DONE
        if told:
            stop.touch()
        if stop.exists():
            return ExitCode.PREEMPTED
        if lost:
            return ExitCode.RETRYABLE
        if not any(path.name.startswith("block") for path in folder.iterdir()):
            watch.alive()
        time.sleep(0.05)

workers = ElasticWorkers(1, 3, 2)
elastic = Elastic(name, role, int(index), own, chief, workers, seconds=60, stop_seconds=60)
supervise(Work(train, forks=True), stalled("starting", 20), name, {}, Limits(restarts=1), elastic)
""".replace("STALL", str(STALL_SECONDS))


class Run:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.addresses = dict(zip(("chief", 0, 1, 2), free_addresses(4), strict=True))
        self.started: list[RunningTask] = []

    def start(self, index: int | None = None, tensorflow: str = "2.21.0") -> RunningTask:
        """Starts a worker, or the chief."""
        role = "chief" if index is None else "worker"
        address = self.addresses["chief" if index is None else index]
        arguments = [role, str(index or 0), address, self.addresses["chief"], tensorflow, str(self.directory)]
        process = subprocess.Popen(
            [sys.executable, "-c", TASK, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(RunningTask(f"{role}-{index or 0}", process))
        return self.started[-1]

    def end(self, *tasks: RunningTask) -> None:
        (self.directory / "end").touch()
        codes = {task.name: task.ended() for task in tasks}
        assert set(codes.values()) == {ExitCode.DONE}, (codes, [task.output for task in tasks])


def trains_with(chief: RunningTask, *workers: int, generation: int) -> None:
    chief.until(Event.MEMBERSHIP, workers=list(workers), generation=generation)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    for task in made.started:
        task.stop()


def test_workers_come_and_leave(run: Run) -> None:
    chief, first, second = run.start(), run.start(0), run.start(2)
    trains_with(chief, 0, 2, generation=0)
    third = run.start(1)
    trains_with(chief, 0, 1, 2, generation=1)
    second.kill()
    trains_with(chief, 0, 1, generation=2)
    assert chief.records(Event.MEMBERSHIP)[-1].fields["left"] == [2]
    run.end(chief, first, third)
    assert not [record for task in (chief, first, third) for record in task.records(Event.RESTARTED)]


def test_who_does_not_fit_is_refused_and_disturbs_nobody(run: Run) -> None:
    chief, first = run.start(), run.start(0)
    trains_with(chief, 0, generation=0)
    other = run.start(1, tensorflow="2.20.0")
    assert other.ended() == ExitCode.PROGRAM_ERROR
    why = "it has TensorFlow 2.20.0, and the chief 2.21.0"
    (failed,) = other.records(Event.FAILED)
    assert failed.fields["message"].startswith(f"this worker is not taken in: {why}")
    chief.until_notice(f"worker-1 is not taken in: {why}; the others continue without it")
    run.end(chief, first)
    assert len(chief.records(Event.MEMBERSHIP)) == 1


def test_a_process_that_hangs_ends_its_pod_and_only_its_own(run: Run) -> None:
    chief, first, second = run.start(), run.start(0), run.start(1)
    trains_with(chief, 0, 1, generation=0)
    (run.directory / "block").touch()  # the others wait for it, and make no progress
    (run.directory / "hang worker-1").touch()
    assert second.ended() == ExitCode.RETRYABLE
    (run.directory / "block").unlink()
    trains_with(chief, 0, generation=1)
    run.end(chief, first)


def test_the_next_chief_finds_those_that_are_there(run: Run) -> None:
    chief, first, second = run.start(), run.start(0), run.start(1)
    trains_with(chief, 0, 1, generation=0)
    chief.kill()
    first.until(Event.DOING, activity="waiting for the chief")
    chief = run.start()
    trains_with(chief, 0, 1, generation=0)
    run.end(chief, first, second)


def test_a_task_that_waits_is_told_of_the_end(run: Run) -> None:
    chief, first = run.start(), run.start(0)
    trains_with(chief, 0, generation=0)
    late = run.start(1)
    late.until(Event.DOING, activity="waiting for the next generation of workers")
    run.end(chief, first, late)


def test_it_ends_where_too_few_workers_come(run: Run) -> None:
    chief = run.start()
    chief.until(Event.DOING, activity="waiting for workers: 0 of at least 1 are there (minReplicas)")
    chief.signal(signal.SIGTERM)
    assert chief.ended() == ExitCode.PREEMPTED
