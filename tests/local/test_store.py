"""A run whose files are empty, truncated, old, or of another version is broken; no other run is affected."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.backends.base import Place
from launcher.backends.local.store import BrokenRunError, SupervisorSettings
from launcher.cli import console, run_table
from launcher.errors import LauncherError, NotFoundError
from launcher.status import Phase
from tests.local.machine import Machine, job, linux_only, marked

SHORT = SupervisorSettings(
    backoff=0.05,
    backoff_limit=0.2,
    peers_seconds=1.0,
    evaluator_seconds=1.0,
    other_image_seconds=1.0,
    failed_seconds=0.3,
)

NO_JSON: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n",
    "zeros": bytes(4096),
    "cut": b'{"run":"demo","namespace":"defau',
    "null": b"null",
    "true": b"true",
    "list": b"[]",
    "object": b"{}",
    "text": b'"x"',
    "no text": b"\xff\xfe\x00",
    "long number": b'{"submitted":' + b"9" * 5000 + b"}",
    "nested": b"[" * 100_000,
    "nested fields": b'{"a":' * 100_000,
    "half a pair": b'{"run":"\\ud800"}',
    "infinite": b"1e999",
    "NaN": b"NaN",
    "negative": b"-1",
    "far": b"1e300",
}
"""Contents that are valid for no file of a run. Tests may only add to them."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with an ended run `demo` of two roles, one of which restarted."""
    machine = Machine(tmp_path_factory.mktemp("whole") / "state", SHORT)
    fails = job("worker", "raise SystemExit(3)", backoffLimit=1)
    chief = job("chief", "print('done')", primary=True, ttlSecondsAfterFinished=100_000)
    status = machine.run(chief, fails, addresses=["demo-chief-0.demo:2222"])
    assert status.ended
    return machine.root


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Machine:
    """A copy of it that a test may break, with a second run `other`."""
    shutil.copytree(whole, tmp_path / "state", ignore=shutil.ignore_patterns("control"))
    os.mkfifo(tmp_path / "state" / "runs" / "default" / "demo" / "control", 0o600)
    machine = Machine(tmp_path / "state", SHORT)
    other = tmp_path / "state" / "runs" / "default" / "other"
    shutil.copytree(tmp_path / "state" / "runs" / "default" / "demo", other, copy_function=_copy_as_other)
    return machine


def _copy_as_other(source: str, target: str) -> None:
    if not Path(source).is_fifo():
        Path(target).write_text(Path(source).read_text().replace("demo", "other"))


def shown(machine: Machine) -> str:
    """Returns what `list` and `status` print."""
    out = io.StringIO()
    runs = [run_table.Listed(status, Place("local")) for status in machine.backend.runs()]
    run_table.show_list(runs, out=console.console(out))
    console.show_status(machine.backend, machine.status(), console.console(out))
    return out.getvalue()


def assert_broken(machine: Machine, file: str) -> None:
    phases = {status.run: status.phase for status in machine.backend.runs()}
    assert phases == {"demo": Phase.BROKEN, "other": Phase.SUCCEEDED}
    status = machine.status()
    assert "run demo in namespace default is broken" in status.message
    assert f"demo/{file} " in status.message
    assert "delete demo -n default" in status.message
    assert "Broken" in shown(machine)
    for use in (
        lambda: machine.end(),
        lambda: machine.lines(),
        lambda: machine.backend.history("demo", "default"),
    ):
        if file != "expires":
            with pytest.raises(BrokenRunError, match="is broken"):
                use()
    machine.backend.delete("demo", "default")
    assert [status.run for status in machine.backend.runs()] == ["other"]
    with pytest.raises(NotFoundError):
        machine.status()
    assert machine.status("other").phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("file", "content"),
    [(file, content) for file in ("run.json", "state.json", "expires") for content in NO_JSON],
)
def test_a_run_with_such_a_file_is_broken_and_no_other(copied: Machine, file: str, content: str) -> None:
    (copied.directory().path / file).write_bytes(NO_JSON[content])
    assert_broken(copied, file)


@pytest.mark.parametrize("file", ["run.json", "state.json", "expires"])
def test_a_folder_in_the_place_of_a_file(copied: Machine, file: str) -> None:
    (copied.directory().path / file).unlink()
    (copied.directory().path / file).mkdir()
    assert_broken(copied, file)


@pytest.mark.parametrize("file", ["run.json", "state.json", "expires"])
def test_a_pipe_in_the_place_of_a_file(copied: Machine, file: str) -> None:
    """Nobody waits for somebody to write to it."""
    path = copied.directory().path / file
    path.unlink()
    os.mkfifo(path)
    assert_broken(copied, file)


def test_a_run_without_its_first_file_is_shown_too(copied: Machine) -> None:
    (copied.directory().path / "run.json").unlink()
    assert_broken(copied, "run.json")


def test_a_run_under_another_name_is_broken(copied: Machine) -> None:
    copied.directory().path.rename(copied.directory("moved").path)
    assert copied.status("moved").phase is Phase.BROKEN
    assert copied.status("other").phase is Phase.SUCCEEDED


@pytest.mark.parametrize("file", ["run.json", "state.json"])
def test_every_beginning_of_a_file_is_broken_or_whole(copied: Machine, file: str) -> None:
    path = copied.directory().path / file
    content = path.read_bytes()
    for size in range(0, len(content), 17):
        path.write_bytes(content[:size])
        assert copied.status().phase is Phase.BROKEN, content[:size]
    path.write_bytes(content)
    assert copied.status().phase is Phase.SUCCEEDED


def test_a_broken_run_is_submitted_again(copied: Machine) -> None:
    (copied.directory().path / "run.json").write_bytes(b"")
    (copied.directory().path / "state.json").write_bytes(b"")
    (copied.directory("other").path / "run.json").write_bytes(b"")
    assert copied.run(job("chief", "print('again')", primary=True)).phase is Phase.SUCCEEDED
    assert copied.texts() == ["again"]


def test_fields_of_a_later_version_are_passed_over(copied: Machine) -> None:
    for file in ("run.json", "state.json"):
        path = copied.directory().path / file
        document = json.loads(path.read_text())
        document["later"] = {"x": [1]}
        if file == "run.json":
            document["settings"]["later"] = 1.0
        else:
            document["pods"][0]["status"]["later"] = None
        path.write_text(json.dumps(document))
    assert copied.status().phase is Phase.SUCCEEDED


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value in a document."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from([[], {}, [None], [[]], {"": None}, "\ud800", "../../x", "9" * 5000, 10**400, -1, "\0"]),
)


@pytest.mark.parametrize("file", ["run.json", "state.json"])
def test_any_value_in_any_place_is_read_or_named(whole: Path, tmp_path: Path, file: str) -> None:
    root = tmp_path / "state"
    shutil.copytree(whole, root, ignore=shutil.ignore_patterns("control"))
    machine = Machine(root, SHORT)
    path = machine.directory().path / file
    document = json.loads(path.read_text())
    ways = list(places(document))

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(ways), ODD, st.booleans())
    def check(way: tuple[Any, ...], value: Any, removed: bool) -> None:
        changed = json.loads(json.dumps(document))
        if not way:
            changed = value
        else:
            holder = changed
            for key in way[:-1]:
                holder = holder[key]
            if removed:
                del holder[way[-1]]
            else:
                holder[way[-1]] = value
        path.write_text(json.dumps(changed))
        shown(machine).encode()
        try:
            machine.end()
            machine.backend.history("demo", "default")
        except LauncherError as error:
            str(error).encode()

    check()


@linux_only
def test_a_run_whose_files_were_emptied_while_it_goes_on_is_deleted(machine: Machine) -> None:
    machine.submit(job("chief", "print('up'); import time; time.sleep(600)", primary=True))
    machine.printed("up")
    submission = machine.directory().submission()
    assert submission is not None
    for file in ("run.json", "control"):
        (machine.directory().path / file).unlink()
        (machine.directory().path / file).touch()
    assert machine.status().phase is Phase.BROKEN
    machine.backend.delete("demo", "default")
    assert not marked(submission.uid)
    assert machine.backend.runs() == []


def test_the_command_line_names_the_broken_run(copied: Machine, tmp_path: Path) -> None:
    (copied.directory().path / "run.json").write_bytes(b"")
    state = tmp_path / "xdg"
    state.mkdir()
    copied.root.rename(state / "tf-launcher")

    def launcher(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "launcher", *arguments],
            env={**os.environ, "XDG_STATE_HOME": str(state)},
            capture_output=True,
            text=True,
            timeout=120,
        )

    listed = launcher("list")
    assert listed.returncode == 0, listed.stderr
    assert ["default", "demo", "Broken"] in [line.split()[:3] for line in listed.stdout.splitlines()]
    assert "run.json is empty" in launcher("status", "demo").stdout
    for command in (["wait", "demo"], ["logs", "demo"], ["suspend", "demo"], ["report", "demo", "-o", "-"]):
        completed = launcher(*command)
        assert completed.returncode == 5 or command[0] == "suspend", completed
        assert "Traceback" not in completed.stderr
    assert launcher("delete", "demo").returncode == 0
    assert "demo" not in launcher("list").stdout


def test_a_supervisor_that_ends_while_it_is_written_to_is_gone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = machine.directory()
    run.path.mkdir(parents=True)
    os.mkfifo(run.control_path)
    reader = run.open_control()
    look = os.fstat

    def ends(descriptor: int) -> os.stat_result:
        os.close(reader)
        return look(descriptor)

    monkeypatch.setattr(os, "fstat", ends)
    delivered = run.send("stop")
    monkeypatch.undo()
    run.path.joinpath("control").unlink()
    run.path.rmdir()
    assert delivered is False
