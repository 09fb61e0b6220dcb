"""What a user sees who follows a run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from launcher.backends.base import EVERYONE, Place, Selection
from launcher.cli import console, live_view, run_table
from launcher.errors import ConflictError
from launcher.status import Phase
from tests.local.machine import TIMEOUT, Machine, eventually, job, kill
from tests.unit.task_records.test_records import NO_RECORDS

CHIEF = "demo-chief-0"


def emits(*records: tuple[str, dict[str, Any]], task: str = CHIEF) -> str:
    """Returns a program that prints these records as the worker runtime does."""
    lines = [
        f"print(Record({event!r}, {task!r}, time.time(), {fields!r}).line(), flush=True)"
        for event, fields in records
    ]
    return "\n".join(["import time", "from worker.contract.records import Record", *lines])


TRAINS = emits(
    ("waiting", {"tasks": ["demo-worker-0"], "seconds": 0.5, "deadline": 900}),
    ("training", {"epochs": 2, "steps_per_epoch": 3, "initial_epoch": 0}),
    *(
        (
            "progress",
            {
                "epoch": 1,
                "epochs": 2,
                "step": step,
                "steps": 3,
                "steps_per_second": 9.5,
                "loss": 0.5,
                "metrics": {"accuracy": 0.75},
                "epoch_end": step == 3,
            },
        )
        for step in (1, 2, 3)
    ),
    ("exported", {"path": "/somewhere/export"}),
    ("something of a later version", {"x": 1}),
    ("done", {}),
)
EVALUATES = emits(
    ("evaluation", {"checkpoint": "ckpt-2", "epoch": 2, "metrics": {"loss": 0.4, "accuracy": 0.8125}}),
    task="demo-evaluator-0",
)


def plain() -> Console:
    return Console(file=io.StringIO(), highlight=False, markup=False, emoji=False, soft_wrap=True)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def watch(machine: Machine, out: Console) -> int:
    return live_view.watch(
        machine.backend, "demo", "default", stop_on_interrupt=True, timeout=TIMEOUT, out=out
    )


def test_a_run_seen_through_a_pipe(machine: Machine) -> None:
    machine.submit(job("chief", f"print('own line')\n{TRAINS}", primary=True), job("evaluator", EVALUATES))
    out = plain()
    assert watch(machine, out) == 0
    text = text_of(out)
    lines = [line.split(" s  ", 1)[1].split(None, 1) for line in text.splitlines() if " s  " in line[:12]]
    sentences = [words[1] for words in lines if words[0] == "chief"]
    assert sentences == [
        "1 task started",
        "waits for demo-worker-0 (0 s of at most 900 s)",
        "trains 2 epochs of 3 steps",
        "epoch 1/2, step 1/3: accuracy 0.7500, loss 0.5000, 9.50 steps/s",
        "epoch 1/2, step 3/3: accuracy 0.7500, loss 0.5000, 9.50 steps/s",
        "exported the model to /somewhere/export",
        "complete",
    ]
    assert ["evaluator", "evaluation after epoch 2: accuracy 0.8125, loss 0.4000"] in lines
    summary = text.partition("run demo has succeeded")[2]
    assert "accuracy 0.8125, loss 0.4000 (after epoch 2)" in summary
    assert "/somewhere/export" in summary
    assert "Complete" in summary
    assert "\x1b" not in text, "no colours in a pipe"


def test_a_terminal_gets_a_table_in_motion(machine: Machine) -> None:
    slow = TRAINS + "\nimport time; time.sleep(0.6)"
    machine.submit(job("chief", slow, primary=True), job("evaluator", EVALUATES))
    out = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False, markup=False)
    assert watch(machine, out) == 0
    text = text_of(out)
    assert "ROLE" in text.partition("has succeeded")[0]
    assert "\x1b" in text
    assert "\x1b[?25h" in text, "the cursor is back"


def test_a_failed_program_is_explained_in_its_own_words(machine: Machine) -> None:
    trace = '  File "mnist.py", line 7, in model\n    return [bold]oops[/bold]\n'
    fails = emits(("failed", {"message": "NameError: oops", "traceback": trace, "exit_code": 70}))
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [70]}}
    machine.submit(
        job("chief", f"{fails}\nraise SystemExit(70)", primary=True, podFailurePolicy={"rules": [rule]})
    )
    out = plain()
    assert watch(machine, out) == 1
    text = text_of(out)
    assert "run demo has failed" in text
    assert "chief ended with exit code 70\n  NameError: oops" in text
    summary = text.partition("has failed after")[2]
    assert "FailJob rule" not in text, "it says no more than the task's own words"
    assert summary.index("NameError: oops") < summary.index("ROLE")
    assert "    return [bold]oops[/bold]" in text
    assert "python -m launcher logs demo" in text


def test_a_failed_script_is_explained_by_the_end_of_its_log(machine: Machine) -> None:
    script = "for i in range(100): print('line', i)\nraise RuntimeError('no such thing')"
    machine.submit(job("chief", script, primary=True, backoffLimit=0))
    out = plain()
    assert watch(machine, out) == 1
    text = text_of(out).partition("has failed")[2]
    assert "RuntimeError: no such thing" in text
    assert "line 99" in text
    assert "line 10\n" not in text


def test_restarts_are_news(machine: Machine) -> None:
    machine.submit(job("chief", "raise SystemExit(3)", primary=True, backoffLimit=1))
    out = plain()
    watch(machine, out)
    text = text_of(out)
    assert "chief      ended with exit code 3" in text
    assert "started again (restart 1)" in text


def test_a_lost_run_says_what_to_do(machine: Machine) -> None:
    machine.submit(job("chief", "import time; print('up'); time.sleep(600)", primary=True))
    machine.printed("up")
    kill(machine.supervisor()[1])
    out = plain()
    assert watch(machine, out) == 1
    text = text_of(out)
    assert "run demo is lost" in text
    assert "python -m launcher delete demo" in text


def test_what_a_script_prints_is_shown(machine: Machine, tmp_path: Path) -> None:
    chatter = "I0000 00:00:1795339012.424170   28554 port.cc:153] oneDNN custom operations are on."
    code = f"print({chatter!r})\nprint('[epoch 1] loss 0.5')"
    machine.submit(job("chief", code, primary=True), job("worker", "print('not the chief')"))
    out = plain()
    assert (
        live_view.watch(
            machine.backend,
            "demo",
            "default",
            stop_on_interrupt=True,
            printing="chief",
            timeout=TIMEOUT,
            out=out,
        )
        == 0
    )
    lines = text_of(out).splitlines()
    assert "[epoch 1] loss 0.5" in lines
    assert not any("oneDNN" in line or "not the chief" in line for line in lines)


def test_submit_shows_what_a_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "cluster.yaml"
    command = json.dumps([sys.executable, "-c", "print('trained it')"])
    file.write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: own}\n"
        f"spec: {{strategy: OneDevice, command: {command}}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "submit", str(file), "--backend", "local"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert "trained it" in done.stdout.splitlines()


def test_waiting_has_an_end(machine: Machine) -> None:
    machine.submit(job("chief", "print('up'); import time; time.sleep(600)", primary=True))
    machine.printed("up")
    with pytest.raises(ConflictError, match=r"run demo has not ended within 0\.3 s"):
        live_view.watch(machine.backend, "demo", "default", stop_on_interrupt=False, timeout=0.3, out=plain())
    assert machine.status().phase is Phase.RUNNING


def test_logs_are_followed_to_the_end(machine: Machine, tmp_path: Path) -> None:
    code = (
        "import os, time; print('one', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        "print('two'); print('caf\\u00e9'); print('no line end', end='')"
    )
    machine.submit(job("chief", code, primary=True), job("worker", "print('other')"))
    lines = machine.backend.logs("demo", "default", Selection(("chief",)), follow=True)
    assert next(lines).text == "one"
    (tmp_path / "go").touch()
    assert [line.text for line in lines] == ["two", "café", "no line end"]


def test_logs_of_some_tasks(machine: Machine) -> None:
    code = "import os; print(os.environ['TASK_INDEX'])"
    machine.run(job("chief", code, primary=True), job("worker", code, replicas=3))

    def texts(selection: Selection) -> list[str]:
        return [
            f"{line.role}-{line.index} {line.text}"
            for line in machine.backend.logs("demo", "default", selection, follow=False)
        ]

    assert texts(Selection(("worker",), (1, 2))) == ["worker-1 1", "worker-2 2"]
    assert texts(Selection((), (0,))) == ["chief-0 0", "worker-0 0"]
    assert len(texts(EVERYONE)) == 4


def test_logs_as_text(machine: Machine) -> None:
    machine.run(job("chief", f"print('[red]own')\n{EVALUATES}", primary=True))
    lines = machine.lines()
    out = plain()
    console.show_logs(lines, out=out)
    assert text_of(out).splitlines() == [
        "chief-0     | [red]own",
        "chief-0     | evaluation after epoch 2: accuracy 0.8125, loss 0.4000",
    ]
    out = plain()
    console.show_logs(lines, raw=True, out=out)
    assert json.loads(text_of(out).splitlines()[1])["event"] == "evaluation"


def test_status_knows_the_latest_records(machine: Machine) -> None:
    machine.submit(job("chief", f"{TRAINS}\nimport time; time.sleep(600)", primary=True))
    eventually(lambda: "done" in machine.status().records.get(CHIEF, {}), "the last record")
    progress = machine.status().records[CHIEF]["progress"]
    assert progress.fields["step"] == 3
    out = plain()
    console.show_status(machine.backend, machine.status(), out)
    assert "run demo is running" in text_of(out)
    out = plain()
    run_table.show_list([run_table.Listed(each, Place("local")) for each in machine.backend.runs()], out=out)
    assert "Running" in text_of(out)


def test_what_a_program_prints_like_a_record_is_text(machine: Machine, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    printed.write_text("".join(f"{line}\n" for line in NO_RECORDS))
    status = machine.run(job("chief", f"print(open({str(printed)!r}).read(), end='')", primary=True))
    assert status.phase is Phase.SUCCEEDED
    assert machine.texts() == NO_RECORDS
    assert machine.status().records == {}
    assert not machine.backend.history("demo", "default").lines
    assert [status.run for status in machine.backend.runs()] == ["demo"]
