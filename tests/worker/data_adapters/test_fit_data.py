"""What fit takes gives the batches that plain Keras trains on, to the last bit."""

from __future__ import annotations

import pytest

from tests.worker.cluster import PROGRAMS
from tests.worker.forked_tasks import computed

BOTH = {
    "class weights of outputs",
    "unequal",
    "validation_split of nothing",
    "PyDataset and targets",
    "Dataset and targets",
}
REFUSED = {
    2: BOTH | {"class weights with gaps"},
    3: BOTH
    | {
        "lists of numbers",
        "sample weights of another shape",
        "PyDataset, both weights",
        "generator, class weights",
    },
}
TAKEN = {
    2: {"PyDataset, both weights"},
    3: {"PyDataset, inputs", "generator, inputs", "PyDataset, strings"},
}
"""What plain Keras fails at, by an error of TensorFlow's own, and the runtime takes."""


@pytest.mark.by_day("3", runtime=())
@pytest.mark.parametrize("keras", [2, 3])
def test_the_batches_are_those_of_plain_keras(keras: int) -> None:
    verdicts = computed(PROGRAMS / "recorded_batches.py", keras, keras=keras)
    assert {name for name, text in verdicts.items() if text == "both refuse"} == REFUSED[keras]
    assert {name for name, text in verdicts.items() if text.startswith("only Keras refuses")} == TAKEN[keras]
    same = {name for name, text in verdicts.items() if text == "same"}
    others = verdicts.keys() - same - REFUSED[keras] - TAKEN[keras]
    assert {name: verdicts[name] for name in others} == {}
    assert len(same) >= 37
