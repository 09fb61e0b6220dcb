"""The parameter servers keep the chief's newest copy, too: its pod may be lost, and its memory with it.

Each says at which port it takes copies, in a file on its disk that the chief reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from worker.checkpoints.position import Position
from worker.copies import transfer
from worker.copies.memory import MemoryCopies, name_of, position_of
from worker.parameter_server.admission import read_file
from worker.peers import probes
from worker.task import Task


@contextlib.contextmanager
def hosting(task: Task, folder: str | None) -> Iterator[None]:
    """Keeps in `folder` what the chief puts, until the block ends; None where nothing is kept."""
    port_file = task.file("copies")
    if folder is None or port_file is None:
        yield
        return
    copies = MemoryCopies(folder, None, lambda _: None)
    copies.whole()
    with transfer.serving(copies.files, copies) as port:
        port_file.write_text(f"{port}\n")
        yield


class Neighbours:
    """The parameter servers that take copies at `addresses`. `notice` is told where none of them has room."""

    def __init__(self, addresses: list[str], notice: Callable[[str], None]) -> None:
        self._addresses = addresses
        self._notice = notice

    @classmethod
    def of(cls, task: Task, notice: Callable[[str], None]) -> Neighbours:
        """Returns those of the run whose chief `task` is."""
        addresses = []
        for index, address in task.cluster.get("ps", {}).items():
            if task.directory is None:
                break
            path = task.file_of(task.pod("ps", index), "copies")
            port = read_file(path, "ps", index).strip()
            if port.isdecimal():
                addresses.append(probes.at_port(address, int(port)))
        return cls(addresses, notice)

    def held(self) -> list[list[Position]]:
        """Returns the positions of the copies that each has; none where it does not answer."""
        positions = []
        for address in self._addresses:
            names: list[str] = []
            with contextlib.suppress(OSError):
                names = transfer.held(address)
            positions.append([position_of(name) for name in names])
        return positions

    def fetch(self, number: int, copies: MemoryCopies, position: Position, alive: Callable[[], None]) -> None:
        """Gets a copy from the neighbour of this number. Raises OSError."""
        copies.fetch(self._addresses[number], position, alive)

    def put(self, copies: MemoryCopies, position: Position) -> None:
        """Gives the copy to the first of them that takes it. One that does not is not asked again."""
        while self._addresses:
            try:
                transfer.put(self._addresses[0], name_of(position), copies.files)
                return
            except OSError as error:
                del self._addresses[0]
                if isinstance(error, transfer.RefusedError) and not self._addresses:
                    self._notice(
                        f"no parameter server keeps a copy of the training in memory ({error}): a lost pod of"
                        " the chief costs what was done since the newest checkpoint in modelDir; a larger"
                        " ps.resources.memory gives room for a copy"
                    )
