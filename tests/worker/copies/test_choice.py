"""Which copy a training goes on from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.checkpoints.position import Position
from worker.copies.choice import Choice, newest

A, B, C = Position(1, 7), Position(1, 9), Position(2, 0)
positions = st.builds(Position, st.integers(0, 3), st.integers(0, 3))


@pytest.mark.parametrize(
    ("held", "stored", "refused", "choice"),
    [
        pytest.param([[], []], Position(), [], Choice(Position()), id="a run that begins"),
        pytest.param([[], []], C, [], Choice(C), id="all were lost: storage has it"),
        pytest.param([[A], [A]], Position(), [], Choice(A, (0, 1)), id="no storage at all"),
        pytest.param([[], [A], [A]], Position(), [], Choice(A, (1, 2)), id="the first task was lost"),
        pytest.param([[A, B], [A]], Position(), [], Choice(B, (0,)), id="one was lost while it copied"),
        pytest.param([[A], [B]], Position(1), [], Choice(B, (1,)), id="a copy is newer than storage"),
        pytest.param([[A], [B]], C, [], Choice(C), id="storage is newer than the copies"),
        pytest.param([[C], []], Position(2), [], Choice(C, (0,)), id="at one position the copy is taken"),
        pytest.param([[A, B], [A]], Position(), [B], Choice(A, (0, 1)), id="the newest cannot be had"),
        pytest.param([[B], []], Position(1), [B], Choice(Position(1)), id="nor any other"),
        pytest.param([[Position()], []], Position(), [], Choice(Position()), id="nothing is no copy"),
    ],
)
def test_the_newest_that_some_task_has_whole(
    held: Sequence[Sequence[Position]], stored: Position, refused: Sequence[Position], choice: Choice
) -> None:
    assert newest(held, stored, refused) == choice


def test_a_copy_of_more_epochs_than_are_recorded_is_left_out() -> None:
    assert newest([[B, C], [A]], Position(), most_epochs=1) == Choice(B, (0,))
    assert newest([[B], [C]], Position(1), most_epochs=-1) == Choice(Position(1))


@given(st.lists(st.lists(positions), min_size=1, max_size=4), positions, st.lists(positions))
def test_nothing_newer_is_left_behind(
    held: list[list[Position]], stored: Position, refused: list[Position]
) -> None:
    choice = newest(held, stored, refused)
    usable = {each for copies in held for each in copies} - set(refused)
    assert choice.position == max([stored, *usable, Position()])
    for task, copies in enumerate(held):
        holder = choice.holder_for(task)
        if not choice.holders or choice.position in copies:
            assert holder is None
        else:
            assert holder is not None
            assert choice.position in held[holder]
