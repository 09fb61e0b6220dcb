"""`logs` of a run on this machine: its options for tasks, numbers of lines and times."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

import launcher
from launcher.backends.local.log_growth import Growth, GrowthRecorder
from launcher.backends.local.store import RunDirectory
from launcher.errors import NotFoundError
from tests.local.command_line import ENDS, CommandLine
from tests.local.machine import eventually, python
from worker.contract.records import Event, line_of

HUNDREDTH = 0.01
"""Of a second: to which a log's times are rounded."""
COUNTS = python("import os\nfor n in range(5): print(os.environ['TASK_INDEX'], n)")


@pytest.fixture
def run(command: CommandLine) -> CommandLine:
    """A run of a chief, three workers and a ps, which have printed and ended."""
    ran = command.run(
        "demo",
        chief={"command": COUNTS},
        worker={"replicas": 3, "command": COUNTS},
        ps={"command": python("print('served')")},
    )
    assert ran.code == 0, ran.err
    return command


def prefixes(out: str) -> set[str]:
    return {line.partition("|")[0].strip() for line in out.splitlines()}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "chief-0 worker-0 worker-1 worker-2 ps-0"),
        ("--role worker", "worker-0 worker-1 worker-2"),
        ("--role worker --role ps", "worker-0 worker-1 worker-2 ps-0"),
        ("--role chief,ps", "chief-0 ps-0"),
        ("--index 0", "chief-0 worker-0 ps-0"),
        ("--index 1,2", "worker-1 worker-2"),
        ("--role worker --index 2", "worker-2"),
        ("worker-1", "worker-1"),
        ("worker", "worker-0 worker-1 worker-2"),
        ("demo-worker-1 ps", "worker-1 ps-0"),
    ],
)
def test_whose(run: CommandLine, arguments: str, shown: str) -> None:
    assert prefixes(run.good("logs", "demo", *arguments.split())) == set(shown.split())


def test_a_pod(run: CommandLine) -> None:
    pod = next(task for task in launcher.find("demo").status().tasks if task.name == "demo-worker-2")
    state = (Path(os.environ["XDG_STATE_HOME"]) / "tf-launcher/runs/default/demo/state.json").read_text()
    (name,) = set(re.findall(rf'"{pod.name}-[a-z0-9]{{5}}"', state))
    assert prefixes(run.good("logs", "demo", name.strip('"'))) == {"worker-2"}


@pytest.mark.parametrize(
    ("arguments", "message", "advice"),
    [
        ("--role worker --index 7", "run demo has no worker 7", "It has 1 chief, 3 workers and 1 ps"),
        ("--index 3", "run demo has no task 3 in any role", "each role counts from 0"),
        ("--role evaluator", "run demo has no evaluator", "It has 1 chief, 3 workers and 1 ps."),
        ("worker-3", "run demo has no role, task or pod worker-3", "Its tasks are chief-0, worker-0"),
    ],
)
def test_who_is_not_there(run: CommandLine, arguments: str, message: str, advice: str) -> None:
    for more in ([], ["-f"]):
        ran = run("logs", "demo", *arguments.split(), *more)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith(f"error: {message}\n")
        assert advice in ran.err
    with pytest.raises(NotFoundError, match="has no worker 7"):
        launcher.find("demo").logs("worker", 7)


def test_a_name_that_is_none_of_a_run(run: CommandLine) -> None:
    ran = run("logs", "demo-worker-0")
    assert ran.code == 3
    command = "`python -m launcher logs demo demo-worker-0`"
    assert f"Is that a task of run demo? {command} shows what it prints." in ran.err
    assert "Did you mean demo?" in run("status", "dmeo").err
    assert "Did you mean" not in run("status", "something-else").err


def test_the_last_lines(run: CommandLine) -> None:
    assert run.good("logs", "demo", "--raw", "--role", "worker", "--tail", "2").splitlines() == [
        f"{task} {line}" for task in range(3) for line in (3, 4)
    ]
    assert run.good("logs", "demo", "--raw", "chief-0", "--tail", "99").splitlines() == [
        f"0 {line}" for line in range(5)
    ]
    assert run("logs", "demo", "--tail", "0") == run("logs", "demo", "ps", "--tail", "0")
    lines = launcher.find("demo").logs(["chief", "ps"], tail=1)
    assert [line.text for line in lines] == ["0 4", "served"]


def test_since_and_timestamps(command: CommandLine, tmp_path: Path) -> None:
    """An old line is left out and a new one is printed; an hour lies between them."""
    go = tmp_path / "go"
    code = (
        "import pathlib, time\nprint('early', flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\n"
        "print('late')"
    )
    began = time.time()
    command.start("demo", worker={"command": python(code)})
    command.until(lambda ran: "early" in ran.out, "logs", "demo")
    state = Path(os.environ["XDG_STATE_HOME"])
    (growth,) = eventually(
        lambda: [path for path in state.rglob("growth.0") if path.read_text().endswith("\n")], "a look"
    )
    seen, size = growth.read_text().split()
    assert began - HUNDREDTH <= float(seen) <= time.time() + HUNDREDTH
    growth.write_text(f"{float(seen) - 3600} {size}\n")
    go.touch()
    assert command("wait", "demo", "--timeout", "60s").code == 0
    assert command.good("logs", "demo", "--raw") == "early\nlate\n"
    assert command.good("logs", "demo", "--raw", "--since", "50m") == "late\n"
    assert command.good("logs", "demo", "--raw", "--since", "2h") == "early\nlate\n"
    first, second = command.good("logs", "demo", "--timestamps").splitlines()
    times = []
    for line, text in ((first, "early"), (second, "late")):
        stamp, rest = line.split(maxsplit=1)
        assert rest == f"worker-0    | {text}"
        times.append(datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc))
    assert times[0].timestamp() == pytest.approx(float(seen) - 3600, abs=0.01)
    assert times[1].timestamp() - times[0].timestamp() >= 3600


def test_earlier_pods_only(command: CommandLine, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        f"seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        "print('again' if seen.exists() else 'first', flush=True)\n"
        "again = seen.exists()\nseen.touch()\nsys.exit(0 if again else 1)"
    )
    assert command.run("demo", worker={"command": python(code)}).code == 0
    assert command.good("logs", "demo", "--raw") == "first\nagain\n"
    assert command.good("logs", "demo", "--raw", "--previous") == "first\n"


def test_earlier_processes_of_a_pod(command: CommandLine) -> None:
    """The record is that of the worker runtime, which starts the next process."""
    again = line_of(Event.RESTARTED, "demo-worker-0", 1.0, {"exit_code": 137, "restart": 1})
    code = f"print('one'); print('two'); print({again!r}); print('three')"
    assert command.run("demo", worker={"command": python(code)}).code == 0
    assert command.good("logs", "demo", "--raw", "--previous").splitlines() == ["one", "two", again]
    assert command.good("logs", "demo", "--raw", "--previous", "--tail", "2").splitlines() == ["two", again]
    status = json.loads(command.good("status", "demo", "-o", "json"))
    assert [(each["restarts"], each["restartsInPlace"]) for each in status["status"]["roles"]] == [(0, 0)]


def test_nothing_printed_is_said(command: CommandLine) -> None:
    assert command.run("demo", worker={"command": python("pass")}).code == 0
    ran = command("logs", "demo")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("note: run demo: what is meant has printed nothing yet")
    assert "no task that is meant had a pod or a process before" in command("logs", "demo", "--previous").err


def test_growth(tmp_path: Path) -> None:
    """Lines have the time of the read that first saw them; reads without new lines record nothing."""
    log, growth = tmp_path / "log.0", tmp_path / "growth.0"
    recorder = GrowthRecorder(log, growth)
    recorder.look(1.0)
    log.write_text("one\n")
    for now in (2.0, 3.0, 4.0):
        recorder.look(now)
    log.write_text("one\ntwo\nthr")
    recorder.look(5.0)
    assert growth.read_text() == "2.00 4\n5.00 11\n"
    log.write_text("one\ntwo\nthree\n")
    os.utime(log, (9.0, 9.0))
    read = Growth(log, growth)
    assert [read.time(end) for end in (4, 8, 14)] == [2.0, 5.0, 9.0]
    assert [read.offset(time) for time in (1.0, 2.0, 2.5, 5.0, 5.5, 99.0)] == [0, 0, 4, 4, 11, 11]
    assert Growth(tmp_path / "none", tmp_path / "none").time(4) is None
    growth.write_text("2.00 4\n5.0")
    assert Growth(log, growth).time(4) == 2.0


GROWTH: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(4096),
    "cut in the size": b"2.00 4\n5.00 1",
    "no size": b"2.00 4\n5.00 x\n6.00 y\n7.00 8\n",
    "a size of many digits": b"2.00 " + b"9" * 5000 + b"\n",
    "a large size": b"2.00 " + b"9" * 30 + b"\n",
    "a negative size": b"2.00 -4\n3.00 -8\n",
    "no number": b"nan 4\ninf 8\n",
    "a far time": b"1e300 4\n99999999999.99 8\n",
    "a time of many digits": b"9" * 5000 + b" 4\n",
    "backwards": b"9.00 8\n2.00 4\n1.00 12\n",
    "no ASCII": "٢.00 ٤\n".encode(),
    "three words": b"2.00 4 4\n",
    "long": b"2.00 4\n" * 100_000,
}
"""What may stand in the file beside a log. Only ever add to them."""


@pytest.mark.parametrize("content", [*GROWTH, "a folder", "a pipe"])
def test_an_odd_growth_file_hides_no_line(command: CommandLine, content: str) -> None:
    assert command.run("demo", worker={"command": python("print('one'); print('two')")}).code == 0
    store = RunDirectory(Path(os.environ["XDG_STATE_HOME"]) / "tf-launcher", "default", "demo")
    growth = store.growth("demo-worker-0", 0)
    growth.unlink()
    if content in GROWTH:
        growth.write_bytes(GROWTH[content])
    else:
        growth.mkdir() if content == "a folder" else os.mkfifo(growth)
    for options in ([], ["--timestamps"], ["--tail", "9"], ["--timestamps", "--tail", "2"]):
        ran = command("logs", "demo", *options)
        assert (ran.code, [line.split()[-1] for line in ran.out.splitlines()]) == (0, ["one", "two"]), ran
    assert command("logs", "demo", "--since", "1s", "--timestamps").code == 0


def test_ended_before_a_look(command: CommandLine) -> None:
    """The lines of a task that ends within the first second have times too."""
    began = time.time()
    assert command.run("demo", worker={"command": ENDS}).code == 0
    (line,) = launcher.find("demo").logs()
    assert line.time is not None
    assert began - HUNDREDTH <= line.time <= time.time() + HUNDREDTH


def test_a_task_before_the_run(run: CommandLine) -> None:
    ran = run("logs", "worker-1", "demo")
    assert (ran.code, ran.out) == (3, "")
    assert "The run's name comes first: `python -m launcher logs demo worker-1`." in ran.err


def test_the_start_of_tensorflow(command: CommandLine) -> None:
    line = "I0000 00:00:1795342904.2 22071 port.cc:153] oneDNN custom operations are on."
    ran = command.run("demo", chief={"command": python(f"print({line!r}); print('own')")})
    assert ran.code == 0, ran.err
    ran = command("logs", "demo")
    assert ran.out == "chief-0     | own\n"
    assert ran.err == "note: left out 1 line that TensorFlow prints at every start; --raw shows all\n"
    ran = command("logs", "demo", "--raw")
    assert (ran.out, ran.err) == (f"{line}\nown\n", "")
