"""The tasks agree on one copy, whatever each of them has. Their key-value store is one of this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.contract.run_config import RunConfig
from worker.copies import agreement, transfer
from worker.copies.memory import FIT, MemoryCopies
from worker.task import Task

NONE, EARLY, LATE, NEXT = Position(), Position(1, 3), Position(1, 9), Position(2)


class Model(tf.Module):  # type: ignore[misc]
    """Its only value is where it was copied."""

    optimizer = None

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = tf.Variable(value)


def value(position: Position) -> float:
    return position.epochs * 100.0 + position.steps


class Store:
    """What TensorFlow's coordination service keeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        monkeypatch.setattr(agreement, "put", self.put)
        monkeypatch.setattr(agreement, "gather", self.gather)

    def put(self, key: str, text: str) -> None:
        with self._changed:
            assert key not in self._values
            self._values[key] = text
            self._changed.notify_all()

    def gather(self, keys: Sequence[str], *_: Any) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: all(key in self._values for key in keys), 30.0)
            return [self._values[key] for key in keys]


class Tasks:
    """Each has copies at some positions, in a folder of its own."""

    def __init__(self, folder: Path, held: Sequence[Sequence[Position]]) -> None:
        self.notices: list[str] = []
        addresses = {index: f"127.0.0.1:{index + 1}" for index in range(len(held))}
        config = RunConfig("run", "MultiWorkerMirrored", {"worker": len(held)}, 60, 60, 60)
        self.tasks = [Task(config, "worker", each, {"worker": addresses}, None, None) for each in addresses]
        self.copies = [self._copies(folder / str(task), each) for task, each in enumerate(held)]
        self.found: dict[int, Any] = {}

    def _copies(self, folder: Path, positions: Sequence[Position]) -> MemoryCopies:
        folder.mkdir()
        for position in positions:
            prefix = folder / "backup" / f"ckpt-{position.epochs}-{position.steps}"
            StateCopy.of(Model(value(position)), position).write(str(prefix))
        return MemoryCopies(str(folder), None, self.notices.append)

    def agree(self, stored: Position) -> None:
        def one(task: Task, copies: MemoryCopies) -> None:
            known_position = stored if task.is_primary else NONE  # the others may not see it
            directory = agreement.agree(task, copies, known_position, self.notices.append, lambda: None)
            self.found[task.index] = directory

        threads = [
            threading.Thread(target=one, args=each) for each in zip(self.tasks, self.copies, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        assert len(self.found) == len(self.tasks)

    def go_on_at(self, position: Position | None) -> None:
        for directory in self.found.values():
            if position is None:
                assert directory is None
                continue
            model = Model(-1.0)
            assert directory.backups() == [position], "the others are removed"
            assert directory.resume(model, self.notices.append) == position
            assert model.value.numpy() == value(position)


@pytest.mark.parametrize(
    ("held", "stored", "expected"),
    [
        pytest.param([[], [], []], NONE, None, id="a run that begins"),
        pytest.param([[], [], []], NEXT, None, id="only storage has it"),
        pytest.param([[EARLY], [EARLY], [EARLY]], NONE, EARLY, id="processes were lost"),
        pytest.param([[], [EARLY], [EARLY]], NONE, EARLY, id="the first pod was lost"),
        pytest.param([[EARLY], [], []], NONE, EARLY, id="one survives"),
        pytest.param([[EARLY], [EARLY, LATE], []], NONE, LATE, id="one had copied, one had not, one is new"),
        pytest.param([[LATE], [EARLY], []], Position(1), LATE, id="newer than storage"),
        pytest.param([[LATE], [EARLY], []], NEXT, None, id="older than storage"),
    ],
)
def test_all_go_on_from_the_newest(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    held: Sequence[Sequence[Position]],
    stored: Position,
    expected: Position | None,
) -> None:
    Store(monkeypatch)
    tasks = Tasks(tmp_path, held)
    tasks.agree(stored)
    tasks.go_on_at(expected)
    assert not tasks.notices


@pytest.mark.parametrize(("fit", "expected"), [(None, [EARLY]), (2, [EARLY]), (1, [])])
def test_a_copy_of_another_fit_is_none(tmp_path: Path, fit: int | None, expected: list[Position]) -> None:
    prefix = tmp_path / "backup" / "ckpt-1-3"
    StateCopy.of(Model(1.0), EARLY, None, {FIT: np.int64(2)}).write(str(prefix))
    copies = MemoryCopies(str(tmp_path), None, print, fit)
    assert copies.whole() == expected
    assert any(prefix.parent.iterdir()) is bool(expected)


def test_a_copy_of_another_fit_is_not_taken_from_another_task(tmp_path: Path) -> None:
    StateCopy.of(Model(1.0), EARLY, None, {FIT: np.int64(1)}).write(
        str(tmp_path / "1" / "backup" / "ckpt-1-3")
    )
    (tmp_path / "0").mkdir()
    copies = MemoryCopies(str(tmp_path / "0"), None, print, 2)
    with transfer.serving(tmp_path / "1" / "backup") as port, pytest.raises(OSError, match="another fit"):
        copies.fetch(f"127.0.0.1:{port}", EARLY, lambda: None)


def damage(path: Path) -> None:
    """Changes a byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001"])
def test_a_damaged_copy_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str) -> None:
    Store(monkeypatch)
    tasks = Tasks(tmp_path, [[EARLY], [LATE]])
    damage(tmp_path / "1" / "backup" / f"ckpt-1-9.{suffix}")
    tasks.agree(NONE)
    tasks.go_on_at(EARLY)


def test_what_a_killed_writer_has_left_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Store(monkeypatch)
    tasks = Tasks(tmp_path, [[EARLY, LATE], [EARLY]])
    (tmp_path / "0" / "backup" / "ckpt-1-9.index").unlink()
    (tmp_path / "0" / "backup" / "writing").mkdir()
    tasks.agree(NONE)
    tasks.go_on_at(EARLY)
    assert len(list((tmp_path / "0" / "backup").iterdir())) == 2, "nothing of the other stays in memory"


def test_a_copy_that_one_cannot_get_is_refused_by_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Store(monkeypatch)
    tasks = Tasks(tmp_path, [[EARLY, LATE], [EARLY], []])
    fetch = MemoryCopies.fetch

    def damaged(copies: MemoryCopies, address: str, position: Position, alive: Any) -> None:
        if position == LATE and copies is tasks.copies[2]:
            raise OSError("ckpt-1-9.index ends 7 bytes too early")
        fetch(copies, address, position, alive)

    monkeypatch.setattr(MemoryCopies, "fetch", damaged)
    tasks.agree(NONE)
    tasks.go_on_at(EARLY)
    assert len(tasks.notices) == 1
    assert "ends 7 bytes too early" in tasks.notices[0]


def test_memory_without_room_for_a_fetched_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Store(monkeypatch)
    tasks = Tasks(tmp_path, [[LATE], []])
    monkeypatch.setattr("worker.copies.memory._room", lambda folder: 0)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "disk"))
    (tmp_path / "disk").mkdir()
    tasks.agree(NONE)
    tasks.go_on_at(LATE)
    assert not tasks.copies[1].keeps
    assert tasks.copies[0].keeps


def test_no_room_is_one_notice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notices: list[str] = []
    copies = MemoryCopies(str(tmp_path), None, notices.append)
    copy = StateCopy.of(Model(1.0), EARLY)
    assert copies.has_room(copy)
    copies.write(copy, lambda: True)
    assert copies.whole() == [EARLY]
    monkeypatch.setattr("worker.copies.memory._room", lambda folder: -1000)
    assert not copies.has_room(copy)
    assert not copies.has_room(copy)
    assert len(notices) == 1
    assert "resources.memory" in notices[0]
    assert copies.whole() == [], "what was kept is given back"
