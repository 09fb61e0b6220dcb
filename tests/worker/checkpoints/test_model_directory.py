"""What a run makes of the model directory that it finds, whatever is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from worker.checkpoints.model_directory import ModelDirectory, begin
from worker.failures import Failure

STATES: dict[str, str | bytes] = {
    "empty": "",
    "cut": '{"runId": "a", "pha',
    "a list": "[]",
    "null": "null",
    "text": '"x"',
    "a number": "1",
    "no UTF-8": b"\xff\xfe",
    "nested": "[" * 100_000,
    "no phase": '{"runId": "a"}',
    "an endless version": '{"runId": "a", "phase": "done", "export": 1e999}',
    "a version that is a path": '{"runId": "a", "phase": "done", "export": "../../x"}',
    "a negative version": '{"runId": "a", "phase": "done", "export": -1}',
    "version 0": '{"runId": "a", "phase": "training", "export": 0}',
    "a version of too many digits": '{"runId": "a", "phase": "training", "export": 99999999999999999999}',
    "a version that is a list": '{"runId": "a", "phase": "training", "export": [1]}',
}
"""What may stand in run-state.json. Only ever add to them."""


def exported(root: Path, *names: str) -> None:
    for name in names:
        (root / "export" / name).mkdir(parents=True)
        (root / "export" / name / "saved_model.pb").write_text(name)


def new(path: str) -> None:
    Path(path, "saved_model.pb").write_text("new")


@pytest.mark.parametrize("state", STATES)
def test_what_was_exported_stays_where_the_state_is_lost(tmp_path: Path, state: str) -> None:
    exported(tmp_path, "1", "3")
    content = STATES[state]
    (tmp_path / "run-state.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    directory = ModelDirectory(str(tmp_path))
    beginning = begin(directory, "b", print)
    assert (beginning.finished, beginning.export) == (False, 4)
    directory.write_export(beginning.export, new)
    exports = {path.parent.name: path.read_text() for path in tmp_path.glob("export/*/saved_model.pb")}
    assert exports == {"1": "1", "3": "3", "4": "new"}


def test_the_next_version_is_above_all_that_are_there(tmp_path: Path) -> None:
    """Names that are no version are passed over; TensorFlow Serving reads 64 bits."""
    exported(tmp_path, "1", "7", "007", "abc", "-9", "1.5", "99999999999999999999", "0")
    (tmp_path / "export" / "9").write_text("a file")
    directory = ModelDirectory(str(tmp_path))
    assert directory.exports() == [1, 7, 9]
    (tmp_path / "run-state.json").write_text(json.dumps({"runId": "a", "phase": "done", "export": 7}))
    assert begin(directory, "b", print).export == 10
    # The same again is the same run's next attempt.
    assert begin(directory, "b", print).export == 10


def test_a_file_in_the_place_of_the_exports_is_told_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "export").write_text("mine")
    with pytest.raises(Failure, match="export is a file, where a folder is expected"):
        begin(ModelDirectory(str(tmp_path)), "a", print)
    assert (tmp_path / "export").read_text() == "mine"


def test_how_long_a_run_has_lived_and_how_often_it_was_lost(tmp_path: Path) -> None:
    """SIGTERM loses nothing; another run begins anew."""
    directory = ModelDirectory(str(tmp_path))
    first = begin(directory, "a", print).life
    assert (first.before, first.losses) == (0.0, 0)
    directory.leave(first)
    assert directory.read_state() is not None
    second = begin(directory, "a", print).life
    assert second.losses == 0
    third = begin(directory, "a", print).life
    assert third.losses == 1
    assert third.before >= second.before
    assert begin(directory, "b", print).life.losses == 0
