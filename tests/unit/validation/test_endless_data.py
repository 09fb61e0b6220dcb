"""Data without an end are found before anything starts, where that is certain."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from launcher.errors import SpecError
from launcher.validation import endless_data, source
from launcher.validation.loader import Loaded, load

HEAD = "class Base:\n    def train_dataset(self, size):\n"
ENDLESS = "data = tf.data.Dataset.range(9).repeat()\nreturn data.map(f).batch(size).prefetch(2)"
CERTAIN = {
    ENDLESS: 3,
    "return (\n    data.shuffle(9)\n    .repeat(-1)\n    .batch(size)\n)": 5,
    "data = data.repeat(count=2)\nwith tf.device('CPU'):\n    data = data.repeat(None)\nreturn data": 5,
    "if size:\n    data = a.repeat()\nelse:\n    data = b.repeat()\nreturn data.filter(f)": 4,
    "if size:\n    return a.repeat()\nreturn b.repeat()": 4,
    "def made(context):\n    return a\nreturn DatasetCreator(made)": 5,
    "return tf.keras.utils.experimental.DatasetCreator(made)": 3,
}
HELPERS = """\
def endless(size):
    return read(size).map(f).repeat()

def read(size):
    return a

class Mixed:
    def again(self, size):
        return endless(size)

@memory.cache
def cached(size):
    return a.repeat()

def around(size):
    return around(size - 1)
"""
BY_HELPERS = {
    "return endless(size).batch(size)": 2,
    "data = self.again(size)\nreturn data.map(f)": 2,
    "return helpers.endless(size)": 2,
    "return read(size).repeat()": 0,
}
NOT_BY_HELPERS = [
    "return endless(size).take(9)",
    "endless = a\nreturn endless(size)",
    "return others.endless(size)",
    "return read(size)",
    "return cached(size)",
    "return around(size)",
]
UNCERTAIN = [
    "return data.repeat().take(9)",
    "return data.repeat(2)",
    "return data.repeat().apply(until)",
    "return data.repeat(count)",
    "return data.repeat(count=2)",
    "data = a.repeat()\ndata = data.take(2)\nreturn data",
    "data = a.repeat()\nif size:\n    data = b\nreturn data",
    "data = a.repeat()\nfor each in b:\n    data = each\nreturn data",
    "data = a.repeat()\ndata, other = b\nreturn data",
    "if size:\n    return a\nreturn b.repeat()",
    "for each in b:\n    return each\nreturn b.repeat()",
    "return tf.data.Dataset.zip(a.repeat(), b)",
    "yield a.repeat()\nreturn a.repeat()",
    "pass",
    "return",
]


def program(body: str) -> str:
    return HEAD + indent(body, " " * 8) + "\n\nclass Program(Base):\n    pass\n"


def loaded(folder: Path, body: str, parameters: str = "") -> Loaded:
    (folder / "train.py").write_text(program(body))
    (folder / "cluster.yaml").write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: mnist}\nspec:\n"
        "  strategy: OneDevice\n  program:\n    source: train.py\n    entrypoint: train:Program\n"
        f"    parameters: {{epochs: 2{parameters}}}\n"
    )
    (cluster_file,) = load(folder / "cluster.yaml")
    return cluster_file


@pytest.mark.parametrize("body", CERTAIN)
def test_it_names_the_line(body: str) -> None:
    message = endless_data.reason({"train.py": program(body).encode()}, "train:Program")
    assert message.startswith(f"train.py:{CERTAIN[body]}: ")


@pytest.mark.parametrize("body", UNCERTAIN)
def test_it_says_nothing_that_is_not_certain(body: str) -> None:
    assert endless_data.reason({"train.py": program(body).encode()}, "train:Program") == ""


@pytest.mark.parametrize("body", [*BY_HELPERS, *NOT_BY_HELPERS])
def test_it_follows_the_program_s_own_functions(body: str) -> None:
    files = {"train.py": program(body).encode(), "data/helpers.py": HELPERS.encode()}
    line = BY_HELPERS.get(body)
    place = {None: "", 0: "train.py:3: "}.get(line, f"data/helpers.py:{line}: ")
    message = endless_data.reason(files, "train:Program")
    assert message.startswith(place)
    assert bool(message) == bool(place)


def test_what_it_cannot_read_is_not_certain() -> None:
    files = {"train.py": b"not python (", "a/b.py": b"Program = made()\nclass A(A): pass"}
    for entrypoint in ("train:Program", "a.b:Program", "a.b:A", "other:Program"):
        assert endless_data.reason(files, entrypoint) == ""


def test_a_file_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        source.read(loaded(tmp_path, ENDLESS))
    (problem,) = caught.value.problems
    assert problem.message == (
        "needed: train.py:3: .repeat() repeats the data without an end: give the number of steps of an "
        "epoch, or let train_dataset() return one pass"
    )
    assert problem.line == 9
    assert source.read(loaded(tmp_path, ENDLESS, ", stepsPerEpoch: 3")) is not None
