"""A chief gives its copy to the first parameter server that takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.copies.test_agreement import EARLY, Model
from worker.checkpoints.state_copy import StateCopy
from worker.copies import transfer
from worker.copies.memory import MemoryCopies
from worker.copies.neighbours import Neighbours


class Server(MemoryCopies):
    """A parameter server's copies. One without room gives the reason of a real one."""

    def __init__(self, folder: Path, *, room: bool) -> None:
        folder.mkdir()
        super().__init__(str(folder), None, lambda _: None)
        self._has_room = room

    def place(self, size: int) -> Path:
        """See the base class."""
        if not self._has_room:
            raise OSError("there is no room in memory")
        return super().place(size)


@pytest.mark.parametrize("rooms", [(False, True), (False, False)])
def test_the_first_that_has_room(tmp_path: Path, rooms: tuple[bool, bool]) -> None:
    notices: list[str] = []
    copies = MemoryCopies(str(tmp_path), None, notices.append)
    copies.write(StateCopy.of(Model(1.0), EARLY), lambda: True)
    with (copies.files / "ckpt-1-3.data-00000-of-00001").open("ab") as file:
        file.truncate(50 << 20)  # more than a connection holds
    servers = [Server(tmp_path / str(number), room=room) for number, room in enumerate(rooms)]
    with (
        transfer.serving(servers[0].files, servers[0]) as one,
        transfer.serving(servers[1].files, servers[1]) as two,
    ):
        neighbours = Neighbours([f"127.0.0.1:{one}", f"127.0.0.1:{two}"], notices.append)
        for _ in range(2):
            neighbours.put(copies, EARLY)
        assert [len(each) for each in neighbours.held()] == [1] * any(rooms)
    assert [server.whole() for server in servers] == [[], [EARLY] if any(rooms) else []]
    assert len(notices) == (not any(rooms))
    if notices:
        assert "there is no room in memory" in notices[0]
