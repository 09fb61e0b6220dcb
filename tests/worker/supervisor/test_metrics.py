"""The metrics of a task, read by Prometheus' own parsers, and served whatever a scraper does."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from tests.worker.cluster import ROOT, eventually
from tests.worker.test_without_tensorflow import run_python
from worker.contract.exit_codes import ExitCode
from worker.contract.records import (
    Checkpoint,
    Content,
    Devices,
    Evaluation,
    MembershipRecord,
    Notice,
    Progress,
    Record,
    Restarted,
    line_of,
)
from worker.supervisor import endpoint
from worker.supervisor.metrics import Metrics

LABELS = {"run": "mnist", "role": "chief", "task": "mnist-chief-0"}
SPENT = {"steps": 40, "examples": 1280.0, "input": 1.5, "computing": 2.25, "peers": 0.5, "saving": 0.125}
Samples = dict[tuple[str, str], float]


def metrics(*contents: Content) -> Metrics:
    made = Metrics(LABELS)
    for content in contents:
        made.hear(content)
    return made


def samples(text: str, parse: Callable[[str], Any] = parse_open) -> Samples:
    """Returns the value of each sample by its name, and by the value of its label that not all have."""
    values = {}
    for family in parse(text):
        for sample in family.samples:
            assert sample.labels.items() >= LABELS.items()
            label_values = [value for key, value in sample.labels.items() if key not in LABELS]
            values[sample.name.removeprefix("tf_launcher_"), "".join(label_values)] = sample.value
    return values


def read(made: Metrics) -> Samples:
    """Returns what both of Prometheus' parsers read, which must be the same."""
    opened = samples(made.text(is_open=True))
    plain = samples(made.text(is_open=False), parse_plain)
    changing = ("checkpoint_age_seconds", ""), ("memory_bytes", "")
    for key in changing:
        assert opened.pop(key, None) is None or plain.pop(key) is not None
    assert opened.keys() == plain.keys()
    for key, value in opened.items():
        assert value == plain[key] or (math.isnan(value) and math.isnan(plain[key]))
    return opened


def test_what_a_training_says() -> None:
    made = metrics(
        Progress(2, 3, 40, 100, 12.5, 0.25, {"accuracy": 0.5}, epoch_end=False),
        Progress(2, 3, 50, None, 13.0, float("nan"), {'a\\"\n': float("-inf")}, epoch_end=False),
        Evaluation("ckpt-1", 1, {"loss": 0.75}),
        Devices(2, 2, (), "2.21.0", ""),
        Checkpoint(1, 3, time.time() - 100.0, 30.0, write_seconds=0.5),
    )
    made.process = os.getpid()
    made.spend(SPENT)
    values = read(made)
    wanted = {
        ("steps_total", ""): 40.0,
        ("examples_total", ""): 1280.0,
        ("step_seconds_total", "input"): 1.5,
        ("step_seconds_total", "computing"): 2.25,
        ("step_seconds_total", "peers"): 0.5,
        ("step_seconds_total", "saving"): 0.125,
        ("steps_per_second", ""): 13.0,
        ("epoch", ""): 2.0,
        ("epochs", ""): 3.0,
        ("epoch_step", ""): 50.0,
        ("metric", 'a\\"\n'): float("-inf"),
        ("evaluation_metric", "loss"): 0.75,
        ("evaluation_epoch", ""): 1.0,
        ("workers", ""): 2.0,
        ("training_process", ""): 1.0,
        ("checkpoint_write_seconds", ""): 0.5,
        ("checkpoint_failing", ""): 0.0,
    }
    assert values.items() >= wanted.items()
    assert math.isnan(values["loss", ""])
    assert ("epoch_steps", "") not in values  # nobody knows them
    assert ("learning_rate", "") not in values
    assert 100 <= samples(made.text(is_open=True))["checkpoint_age_seconds", ""] < 160


def test_a_process_that_has_ended_has_no_speed() -> None:
    made = metrics(Progress(1, 3, 40, 100, 12.5, 0.25, {}, epoch_end=False))
    values = read(made)
    assert values["training_process", ""] == 0.0
    assert ("steps_per_second", "") not in values
    assert values["loss", ""] == 0.25


def test_what_is_known_at_an_epochs_end_stays() -> None:
    values = read(
        metrics(
            Progress(1, 3, 100, 100, 12.5, 0.25, {"accuracy": 0.5}, epoch_end=True, learning_rate=0.01),
            Progress(2, 3, 3, 100, 12.5, None, {}, epoch_end=False),
        )
    )
    assert (values["metric", "accuracy"], values["learning_rate", ""], values["loss", ""]) == (
        0.5,
        0.01,
        0.25,
    )
    assert (values["epoch", ""], values["epoch_step", ""]) == (2.0, 3.0)


def test_restarts_by_what_ended_the_process_before() -> None:
    killed = 128 + signal.SIGKILL
    codes = (ExitCode.RETRYABLE, killed, killed, ExitCode.PREEMPTED, 128 + signal.SIGSEGV)
    before = read(metrics())
    assert [before["restarts_total", each] for each in ("lost task", "SIGKILL")] == [0.0, 0.0]
    values = read(metrics(*(Restarted(code, 1 + number) for number, code in enumerate(codes))))
    causes = {cause: value for (name, cause), value in values.items() if name == "restarts_total"}
    assert causes == {"lost task": 1.0, "SIGKILL": 2.0, "stopped with the others": 1.0, "SIGSEGV": 1.0}


def test_who_is_there() -> None:
    made = metrics(Devices(3, 3, (), "2.21.0", ""))
    made.attend(2)
    assert read(made)["workers", ""] == 2.0
    made.attend(0)
    assert read(made)["workers", ""] == 0.0
    made.hear(MembershipRecord((0, 2, 3), (3,), (), "", 4))
    assert (read(made)["workers", ""], read(made)["generation", ""]) == (3.0, 4.0)


def test_a_checkpoint_that_cannot_be_written() -> None:
    values = read(metrics(Checkpoint(0, 0, 0.0, 30.0, 1500.0, "no space")))
    assert values["checkpoint_failing", ""] == 1.0
    assert ("checkpoint_age_seconds", "") not in values


# Served by HTTP


def served(notices: list[Content]) -> int:
    """Serves metrics in this process. Returns the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]
        endpoint.serve(f"fd:{os.dup(listener.fileno())}", metrics(), notices.append)
    return int(number)


def get(port: int, path: str = "/metrics", accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_format_that_is_asked_for() -> None:
    port = served([])
    kind, text = get(port)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert ("training_process", "") in samples(text, parse_plain)
    asks = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    kind, text = get(port, "/metrics?x=1", asks)
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert ("training_process", "") in samples(text)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/")


def test_what_scrapers_may_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_REQUEST_SECONDS", 0.3)
    port = served([])
    for sent in (b"", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"x" * 100_000):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            try:
                connection.sendall(sent)
            except OSError:
                continue  # it has read enough
    hangs = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    try:
        assert "training_process" in get(port)[1]
    finally:
        for each in hangs:
            each.close()


def test_a_port_that_is_taken_is_no_failure() -> None:
    notices: list[Content] = []
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        endpoint.serve(f"mnist-chief-0.mnist:{port}", metrics(), notices.append)
    assert notices == [Notice(f"no metrics are served: cannot listen on port {port}: Address already in use")]


# By a supervisor

SUPERVISE = """
import os, signal, sys, time
from worker.contract.environment import Env
from worker.contract.records import Progress
from worker.process.watch import stalled
from worker.reporting import Reporter
from worker.supervisor.metrics import Metrics
from worker.supervisor.supervisor import Limits, Work, supervise
def train(watch):
    {body}
work = Work(train, forks=True)
labels = dict(run="mnist", role="chief", task="mnist-chief-0")
supervise(work, stalled("starting", {seconds}), "mnist-chief-0", {{}}, Limits(30, 1), metrics=Metrics(labels))
"""
STEPS = "Progress(1, 3, 40, 100, 12.5, 0.25, {'accuracy': float('nan')}, False)"


def test_it_is_served_over_the_kill_of_a_training_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        body = (
            f"Reporter('mnist-chief-0', watch.tell).emit({STEPS}); watch.spend({SPENT}); "
            "print(os.getpid(), flush=True); time.sleep(60)"
        )
        listener.set_inheritable(True)
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE.format(body=body, seconds=60)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_LAUNCHER_METRICS": f"fd:{listener.fileno()}"},
            pass_fds=[listener.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
    assert process.stdout is not None

    def served() -> Samples:
        return samples(get(port, accept="application/openmetrics-text")[1])

    with process:
        try:
            first = next(int(line) for line in process.stdout if Record.parse(line) is None)
            # The line comes by another way than what the supervisor hears, and may come first.
            eventually(lambda: ("steps_total", "") in served(), "the first step's numbers")
            values = served()
            assert values["steps_total", ""] == 40.0
            assert values["loss", ""] == 0.25
            assert math.isnan(values["metric", "accuracy"])
            assert values["memory_bytes", ""] > 1 << 20
            os.kill(first, signal.SIGKILL)
            second = next(int(line) for line in process.stdout if Record.parse(line) is None)
            assert second != first
            eventually(lambda: ("restarts_total", "SIGKILL") in served(), "the restart's count")
            values = served()
            assert values["restarts_total", "SIGKILL"] == 1.0
            assert values["training_process", ""] == 1.0
        finally:
            process.kill()


def test_a_record_of_another_thread_is_no_sign_of_life() -> None:
    """The training hangs, and a thread beside it goes on printing."""
    line = line_of("notice", "mnist-chief-0", 1.0, {"message": "still here"})
    body = f"[(time.sleep(0.1), watch.tell({line!r})) for _ in range(100)]; return 0"
    done = run_python(SUPERVISE.format(body=body, seconds=1.0))
    assert done.returncode == ExitCode.RETRYABLE
    alive = "[(time.sleep(0.1), watch.alive()) for _ in range(20)]; return 0"
    assert run_python(SUPERVISE.format(body=alive, seconds=1.0)).returncode == 0


def test_a_record_that_nobody_understands_is_left_out() -> None:
    made = metrics()
    made.read({"event": "progress", "epoch": "x"})
    made.read({"event": "of-a-later-version"})
    assert ("training_process", "") in read(made)
