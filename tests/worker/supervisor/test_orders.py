"""What a supervisor answers while its training process does something else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import ROOT
from worker.contract import orders
from worker.contract.environment import Env

TASK = "tiny-chief-0"
PROGRAM = """
import ctypes, json, os, pathlib, signal, sys, threading, time
from worker.process.watch import stalled
from worker.supervisor.supervisor import Limits, Work, supervise
def stuck(seconds):
    # Sleeps in C without giving up Python's lock, as an operation does that waits for a hung peer.
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
def train(watch):
    print(os.getpid(), flush=True)
    {body}
supervise(Work(train), stalled("starting", 60), {task!r}, {{}}, Limits(), directory={directory!r})
"""


@contextmanager
def supervised(directory: Path, body: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Gives the supervisor, and the training process' number."""
    code = PROGRAM.format(body=body, task=TASK, directory=str(directory))
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), Env.LOCAL: "x/y"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def connected(directory: Path) -> Iterator[socket.socket]:
    deadline = time.monotonic() + 10
    while not (directory / orders.SOCKET).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with socket.socket(socket.AF_UNIX) as connection, orders.socket_path(directory) as path:
        connection.settimeout(20)
        while connection.connect_ex(path):  # it is there before it listens
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield connection


def asked(directory: Path, order: str, task: str = TASK, **fields: Any) -> Any:
    with connected(directory) as connection, connection.makefile("rb") as answer:
        connection.sendall(json.dumps({"task": task, "order": order, **fields}).encode() + b"\n")
        while (line := answer.readline()) == b"\n":
            pass
        return json.loads(line)


def stacks(directory: Path) -> str:
    """Returns the stacks, once the supervisor has heard of its process."""
    deadline = time.monotonic() + 10
    while "no training process" in (answer := asked(directory, orders.STACKS)).get("problem", ""):
        assert time.monotonic() < deadline
    return str(answer["stacks"])


def test_stacks_of_a_process_that_holds_pythons_lock_in_c_and_then_goes_on(tmp_path: Path) -> None:
    with supervised(tmp_path, "threading.Thread(target=stuck, args=(8,)).start(); stuck(0); return 7") as (
        process,
        _,
    ):
        began = time.monotonic()
        text = stacks(tmp_path)
        assert time.monotonic() - began < 7.9, "it has waited for the lock"
        assert "in stuck" in text
        assert "in train" in text
        assert process.wait(20) == 7
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_long_path_is_no_hindrance_and_two_may_ask_at_once(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 30)
    directory.mkdir()
    with supervised(directory, "time.sleep(60)"):
        texts: list[str] = []
        threads = [threading.Thread(target=lambda: texts.append(stacks(directory))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [text.count("in train") for text in texts] == [1, 1]
        assert "\0" not in "".join(texts), "the second one is written behind the first one's place"


def test_threads_that_come_and_go_do_not_end_the_process_when_the_stacks_are_asked_for(
    tmp_path: Path,
) -> None:
    body = """
    def deep(left):
        return deep(left - 1) if left else sum(range(50))
    def work():
        while True:
            thread = threading.Thread(target=deep, args=(20,))
            thread.start()
            thread.join()
    for _ in range(8):
        threading.Thread(target=work, daemon=True).start()
    while True:
        ctypes.CDLL(None).usleep(100_000)  # without the lock, as an operation of TensorFlow's
"""
    with supervised(tmp_path, body) as (process, child):
        for _ in range(25):
            assert "in train" in stacks(tmp_path)
        assert process.poll() is None
        os.kill(child, 0)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("signal.signal(signal.SIGUSR1, signal.SIG_DFL); stuck(60)", "a handler of its own"),
        ("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)", "is stopped"),
    ],
)
def test_a_process_without_an_answer_is_explained_and_lives(tmp_path: Path, body: str, problem: str) -> None:
    with supervised(tmp_path, body) as (process, child):
        time.sleep(0.3)
        assert problem in asked(tmp_path, orders.STACKS)["problem"]
        assert process.poll() is None
        os.kill(child, 0)


def test_another_pod_on_the_same_loopback_is_not_taken_for_the_task(tmp_path: Path) -> None:
    with supervised(tmp_path, "time.sleep(60)"):
        answer = asked(tmp_path, orders.STACKS, task="other-chief-0")
        assert answer == {"problem": f"{TASK} answers in its place"}
        assert "does not know" in asked(tmp_path, "dance")["problem"]


TAKES = """
    watch.trains(True)
    order = pathlib.Path({directory!r}, "profile")
    while not order.exists():
        time.sleep(0.01)
    taken = json.loads(order.read_text()); order.unlink()
    {answer}
"""


def test_a_profile_is_ordered_by_a_file_and_answered(tmp_path: Path) -> None:
    answer = "time.sleep(1.5); watch.profiled({**taken, 'path': 'p'}); time.sleep(9)"
    with supervised(tmp_path, TAKES.format(directory=str(tmp_path), answer=answer)):
        time.sleep(0.5)
        answered = asked(tmp_path, orders.PROFILE, steps=1_000_000)
        assert (answered["steps"], answered["path"]) == (orders.MOST_STEPS, "p")
        assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("watch.trains(False); time.sleep(60)", "ended, or was interrupted"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended, or was interrupted"),
        ("watch.profiled({'number': 'another'}); watch.trains(False); time.sleep(60)", "ended, or was"),
    ],
)
def test_a_training_that_ends_meanwhile_leaves_nobody_waiting(
    tmp_path: Path, answer: str, problem: str
) -> None:
    with supervised(tmp_path, TAKES.format(directory=str(tmp_path), answer=answer)):
        time.sleep(0.5)
        try:
            assert problem in asked(tmp_path, orders.PROFILE, steps=20)["problem"]
        except (json.JSONDecodeError, ConnectionError):
            assert "SIGKILL" in answer  # the supervisor has left with it


def test_an_order_is_withdrawn_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    order = tmp_path / "profile"
    with supervised(tmp_path, "watch.trains(True); time.sleep(60)"):
        time.sleep(0.5)
        with connected(tmp_path) as connection:
            connection.sendall(
                json.dumps({"task": TASK, "order": orders.PROFILE, "steps": 5}).encode() + b"\n"
            )
            assert connection.recv(1) == b"\n"
            assert json.loads(order.read_text())["steps"] == 5
            assert "another profile" in asked(tmp_path, orders.PROFILE, steps=20)["problem"]
        deadline = time.monotonic() + 10
        while order.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_task_that_takes_no_steps_says_so(tmp_path: Path) -> None:
    with supervised(tmp_path, "time.sleep(60)"):
        assert "takes no steps" in asked(tmp_path, orders.PROFILE, steps=20)["problem"]


def test_sigusr1_is_the_signal(tmp_path: Path) -> None:
    with supervised(tmp_path, "time.sleep(2); return 5") as (process, child):
        os.kill(child, signal.SIGUSR1)  # by hand: it goes on, and nobody is told
        assert process.wait(20) == 5
