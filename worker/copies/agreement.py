"""The tasks of a collective agree on the copy from which all go on, and those that lack it get it from the
others.

It goes by TensorFlow's coordination service, which the tasks that train together have anew each time. The
first task chooses. A copy that some task cannot get, or that came to it damaged, is refused by all of them,
and the next one is chosen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position
from worker.collective.kv_store import gather, put
from worker.copies import transfer
from worker.copies.choice import Choice, newest
from worker.copies.memory import MemoryCopies
from worker.copies.neighbours import Neighbours
from worker.peers import probes
from worker.task import Task

_WHOLE = "whole"


def agree(
    task: Task,
    copies: MemoryCopies,
    stored: Position,
    notice: Callable[[str], None],
    alive: Callable[[], None],
    neighbours: Neighbours | None = None,
    *,
    most_epochs: float = math.inf,
    key: str = "copies",
) -> ModelDirectory | None:
    """Returns the directory in memory that has the newest copy, and nothing else; None where none is as new
    as the newest checkpoint in storage, which is at `stored`. That is read by the first task only.

    Every task of a collective must call it, with a `key` of this call's; a coordinator asks its `neighbours`.
    The first task leaves out copies of more than `most_epochs`. Raises Failure (RETRYABLE)
    where a task is lost meanwhile.
    """
    held = copies.whole()
    if not task.config.is_collective or not task.peers or task.address is None:
        return _of_neighbours(held, copies, stored, notice, alive, neighbours, most_epochs)
    with transfer.serving(copies.files) as port:
        offer = {"address": probes.at_port(task.address, port), "held": _plain(held)}
        return _Agreement(task, copies, stored, notice, alive, most_epochs, key).reached(offer)


def _of_neighbours(
    held: list[Position],
    copies: MemoryCopies,
    stored: Position,
    notice: Callable[[str], None],
    alive: Callable[[], None],
    neighbours: Neighbours | None,
    most_epochs: float,
) -> ModelDirectory | None:
    refused: list[Position] = []
    theirs = neighbours.held() if neighbours is not None else []
    while True:
        choice = newest([held, *theirs], stored, refused, most_epochs)
        holder = choice.holder_for(0)
        if holder is None or neighbours is None:
            return copies.only(choice)
        try:
            neighbours.fetch(holder - 1, copies, choice.position, alive)
        except OSError as error:
            notice(_cannot_be_had(choice.position, error))
            refused.append(choice.position)
        else:
            return copies.only(choice)


def _cannot_be_had(position: Position, error: OSError) -> str:
    return f"the copy of {position} in memory cannot be had from another task: {error.strerror or error}"


class _Agreement:
    def __init__(
        self,
        task: Task,
        copies: MemoryCopies,
        stored: Position,
        notice: Callable[[str], None],
        alive: Callable[[], None],
        most_epochs: float,
        key: str,
    ) -> None:
        self._most_epochs = most_epochs
        self._key = key
        self._rank = task.rank
        self._peers = task.peers
        self._copies = copies
        self._stored = stored
        self._notice = notice
        self._alive = alive

    def reached(self, offer: Mapping[str, Any]) -> ModelDirectory | None:
        refused: list[Position] = []
        held = [json.loads(each) for each in self._exchanged("held", json.dumps(offer))]
        for round_ in count():
            choice = self._chosen(f"choice/{round_}", held, refused)
            if not choice.holders:
                return self._copies.only(choice)
            results = self._exchanged(f"result/{round_}", self._got(choice, held))
            if all(result == _WHOLE for result in results):
                return self._copies.only(choice)
            refused.append(choice.position)
        raise AssertionError

    def _chosen(self, key: str, held: list[Any], refused: list[Position]) -> Choice:
        """Returns the first task's choice: the others may not see the same storage."""
        if self._rank == 0:
            held_positions = [_positions(each["held"]) for each in held]
            choice = newest(held_positions, self._stored, refused, self._most_epochs)
            put(f"{self._key}/{key}", json.dumps([*_plain([choice.position]), choice.holders]))
            return choice
        position, holders = json.loads(self._gathered([f"{self._key}/{key}"])[0])
        return Choice(Position(*position), tuple(holders))

    def _got(self, choice: Choice, held: list[Any]) -> str:
        """Gets the chosen copy, if need be. Returns _WHOLE where this task has it."""
        holder = choice.holder_for(self._rank)
        if holder is None:
            return _WHOLE
        try:
            self._copies.fetch(held[holder]["address"], choice.position, self._alive)
        except OSError as error:
            self._notice(_cannot_be_had(choice.position, error))
            return "not had"
        return _WHOLE

    def _exchanged(self, key: str, text: str) -> list[str]:
        """Tells all tasks. Returns what each of them tells, in their order."""
        put(f"{self._key}/{key}/{self._rank}", text)
        return self._gathered([f"{self._key}/{key}/{rank}" for rank in range(1 + len(self._peers))])

    def _gathered(self, keys: list[str]) -> list[str]:
        return gather(keys, self._peers, "the tasks agreed on the newest copy", self._alive)


def _plain(positions: list[Position]) -> list[list[int]]:
    return [[each.epochs, each.steps] for each in positions]


def _positions(plain: list[list[int]]) -> list[Position]:
    return [Position(*each) for each in plain]
