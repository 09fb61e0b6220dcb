"""What data workers give is what the dataset has, however often the reading is interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from worker.input import until_exit
from worker.input.data_service_reader import registered
from worker.input.pass_reader import PassProgress, PassReader
from worker.tf_compat.dataset_parts import divided
from worker.tf_compat.graphs import data_service_dataset

EXAMPLES, BATCH = 50, 8
numbers = tf.data.Dataset.range(EXAMPLES)
service = tf.data.experimental.service


def files(folder: Path) -> list[str]:
    for number in range(3):
        lines = "".join(f"{example}\n" for example in range(number, EXAMPLES, 3))
        (folder / f"{number}.txt").write_text(lines)
    return sorted(str(path) for path in folder.glob("*.txt"))


def to_number(line: Any) -> Any:
    return tf.strings.to_number(line, tf.int64)


PIPELINES: dict[str, Callable[[Path], Any]] = {
    "plain": lambda _: numbers,
    "shuffled": lambda _: numbers.shuffle(EXAMPLES).map(lambda number: number),
    "shuffled late": lambda _: numbers.map(lambda number: number).shuffle(9, seed=3),
    "pairs": lambda _: tf.data.Dataset.zip((numbers.map(lambda number: 2 * number), numbers)).map(
        lambda twice, number: twice - number
    ),
    "pairs of filtered ones": lambda _: tf.data.Dataset.zip(
        (numbers.filter(lambda number: number % 2 == 0), tf.data.Dataset.range(EXAMPLES // 2))
    ).map(lambda number, half: number - half),
    "numbered": lambda _: numbers.map(lambda number: -number).enumerate().map(lambda index, _: index),
    "some": lambda _: tf.data.Dataset.range(1000).skip(10).map(lambda number: number).take(30),
    "the rest": lambda _: numbers.shuffle(EXAMPLES, 3, reshuffle_each_iteration=False).skip(20),
    "sequences": lambda _: numbers.batch(5).map(lambda five: five[:4]).shuffle(4).unbatch(),
    "windows": lambda _: numbers.window(3, 1, drop_remainder=True).flat_map(lambda three: three.batch(3)),
    "cached": lambda folder: numbers.cache(str(folder / "cache")).shuffle(9),
    "twice": lambda _: numbers.shuffle(EXAMPLES).repeat(2),
    "lines": lambda folder: tf.data.TextLineDataset(files(folder)).map(to_number),
    "files": lambda folder: (
        tf.data.Dataset.from_tensor_slices(files(folder))
        .shuffle(3)
        .interleave(lambda name: tf.data.TextLineDataset(name).map(to_number))
        .shuffle(7)
    ),
    "of one size": lambda _: numbers.filter(lambda number: number % 2 > 0).apply(
        tf.data.experimental.assert_cardinality(EXAMPLES // 2)
    ),
    "mixed": lambda _: tf.data.Dataset.sample_from_datasets(
        [numbers.take(20).map(lambda number: number), numbers.skip(20)]
    ),
    "one after the other": lambda _: (
        numbers.take(20).map(lambda number: number).concatenate(numbers.skip(20))
    ),
}


@pytest.fixture(scope="module")
def address() -> str:
    """Runs a dispatcher and three data workers."""
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    address = dispatcher.target.partition("://")[2]
    config = service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=200)
    servers = [service.WorkerServer(config) for _ in range(3)]
    until_exit.keep(dispatcher, *servers)
    return str(dispatcher.target)


def joined(dataset: Any) -> Any:
    return dataset.rebatch(BATCH)


def reader(address: str, dataset: Any, begun: PassProgress | None, count: int = 7) -> PassReader:
    parts = divided(dataset)
    assert parts is not None

    def read(identifier: Any, element: Any, job: Any) -> Any:
        policy = service.ShardingPolicy.DYNAMIC
        return data_service_dataset(policy, address, identifier, element, job)

    return PassReader(
        parts,
        count,
        begun or PassProgress(0, np.zeros([count], np.int64)),
        "job",
        partial(registered, address),
        read,
        joined,
    )


def examples(batches: Any) -> Counter[Any]:
    """Returns how often each example is in `batches`."""
    values = (batch.numpy() for batch in batches)
    return Counter(str(value) for batch in values for value in batch.tolist())


def times(counts: Counter[Any], number: int) -> Counter[Any]:
    return Counter({example: number * count for example, count in counts.items()})


@pytest.fixture
def seeded() -> Iterator[None]:
    """As the runtime does: all attempts have one order."""
    tf.random.set_seed(3)
    yield
    tf.random.set_seed(None)


QUICK = ("shuffled", "pairs", "sequences", "files")


@pytest.mark.by_day("shuffled", runtime=())
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.thorough) for name in PIPELINES],
)
@pytest.mark.usefixtures("seeded")
def test_three_attempts_read_each_pass_once(name: str, address: str, tmp_path: Path) -> None:
    dataset = PIPELINES[name](tmp_path).batch(BATCH)
    whole = examples(dataset)
    batches = -(-sum(whole.values()) // BATCH)
    examples_read, begun = Counter[Any](), None
    for count, taken in enumerate((1, batches // 2, batches + 1), 4):
        attempt = reader(address, dataset, begun, count)
        examples_read += examples(attempt.passes().take(taken))
        begun = attempt.progress(taken)
        begun = PassProgress.of(begun.values())
    rest = 3 * batches - 1 - batches // 2 - batches - 1
    examples_read += examples(reader(address, dataset, begun).passes().take(rest))
    assert examples_read == times(whole, 3)


def test_batches_across_passes_go_on(address: str, tmp_path: Path) -> None:
    dataset = numbers.shuffle(EXAMPLES, seed=3).repeat().batch(BATCH)
    begun, examples_read = None, Counter[Any]()
    for taken in (5, 6, 2, 12):  # 25 batches are 4 passes
        attempt = reader(address, dataset, begun)
        examples_read += examples(attempt.passes().take(taken))
        begun = attempt.progress(taken)
    assert examples_read == times(examples(numbers.batch(BATCH)), 4)


def test_each_pass_has_an_order_of_its_own(address: str) -> None:
    dataset = numbers.shuffle(EXAMPLES).batch(BATCH)
    read = np.concatenate(list(reader(address, dataset, None, 1).passes().take(14).as_numpy_iterator()))
    first, second = np.split(read, 2)
    assert sorted(first) == sorted(second) == list(range(EXAMPLES))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(
    "dataset",
    [
        tf.data.Dataset.sample_from_datasets([numbers.repeat(), numbers.repeat()]),
        tf.data.Dataset.random(seed=1),
    ],
)
def test_what_has_no_passes_is_not_divided(dataset: Any) -> None:
    assert divided(dataset.batch(BATCH)) is None


@pytest.mark.parametrize(
    ("dataset", "shares"),
    [
        (numbers.take(9).map(lambda number: number), True),
        (numbers.map(lambda number: number).take(9), False),
        (numbers.batch(2).map(lambda two: two), True),
    ],
)
def test_it_knows_what_each_must_do_for_itself(dataset: Any, shares: bool) -> None:
    parts = divided(dataset.batch(BATCH))
    assert parts is not None
    assert parts.shares_work == shares
