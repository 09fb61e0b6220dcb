"""A callback goes back to what it was after an earlier epoch."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tf_keras

from worker.script.callback_states import CallbackStates


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
def test_what_it_was_made_with_comes_back_too(library: Any) -> None:
    class Seen(library.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.losses: list[float] = []

    rate, seen = library.callbacks.ReduceLROnPlateau(patience=3), Seen()
    states = CallbackStates([rate, seen], None, writes=False)
    rate.best = 1.0
    before = states.values()
    rate.wait, rate.best = 1, 0.5
    seen.losses.append(0.5)
    later = states.values()
    states.restore(later)
    assert (rate.wait, rate.best, seen.losses) == (1, 0.5, [0.5])
    states.restore(before)
    assert (rate.wait, rate.best, seen.losses) == (0, 1.0, [])
    seen.losses.append(7.0)
    states.restore(before)
    assert seen.losses == [], "no list is shared"
