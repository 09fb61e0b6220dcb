"""The part of the data that sharding by files leaves out of an epoch, and the notice about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker import tfrecords
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from tests.worker.input.test_datasets import SAMPLES, recorded, seen
from worker.contract.records import Event

UNEQUAL = [16, 8, 8, 4, 4]
"""Records in each file. Of two tasks one reads the first, third and fifth: 28 of the 40."""


def write(directory: Path, counts: list[int]) -> None:
    number = 0
    for index, count in enumerate(counts):
        names = [str(value).rjust(4, "0").encode() for value in range(number, number + count)]
        tfrecords.write(directory / f"{index}.tfrecord", names)
        number += count


@pytest.mark.nightly
@pytest.mark.thorough
def test_an_epoch_leaves_out_what_the_notice_says(make_cluster: MakeCluster, tmp_path: Path) -> None:
    options = recorded(tmp_path, len(UNEQUAL), replicas={"worker": 2})
    write(tmp_path, UNEQUAL)
    cluster = make_cluster(**options)
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0, 0]
    notices = {
        name: [record.fields["message"] for record in task.records(Event.NOTICE)]
        for name, task in tasks.items()
    }
    (notice,) = notices["worker", 0]
    assert notices["worker", 1] == []
    assert notice.startswith(
        "recorded:Recorded: train_dataset() is shared out by files, and they are not equal: of 5 files the 2 "
        "tasks read 3, 2, 70%, 30% of the bytes. Each takes equally many examples, so an epoch of as many "
        "examples as the files have leaves out about 20% of the data and reads 20% twice: use spec.strategy"
    )
    read = {number for samples in seen(tmp_path, "trained").values() for number in samples}
    assert len(read) == SAMPLES * 0.8


_NOTICES = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
import tensorflow as tf
from worker.context import Hooks, Loop
from worker.input import file_sharding
from worker.parameters import TrainingParameters
from worker.tf_compat.graphs import file_names

data = tf.data
files = sorted(str(path) for path in Path(sys.argv[1]).glob("*.tfrecord"))
names = data.Dataset.from_tensor_slices(files)
listed = data.Dataset.list_files(files, shuffle=True)
records = data.TFRecordDataset
datasets = {
    "interleaved": names.interleave(records).batch(4),
    "flat": names.flat_map(records).map(tf.strings.length).shuffle(8).batch(4).repeat(),
    "direct": records(files).batch(4),
    "listed": listed.interleave(records, num_parallel_calls=2).batch(4),
    "known": names.interleave(records).batch(4).apply(data.experimental.assert_cardinality(10)),
    "twice": data.Dataset.zip(records(files), records(files)).batch(4),
    "unknown": names.filter(lambda name: True).interleave(records).batch(4),
    "equal": records(files[1:3] + files[3:5]).batch(4),
    "gone": records([files[0], files[0] + ".gone", files[1]]).batch(4),
    "numbers": data.Dataset.range(9).batch(4),
}
found = {}
for name, dataset in datasets.items():
    said = []
    for writes in (True, False):
        loop = Loop(
            program=SimpleNamespace(entrypoint="a:B", worded=str),
            parameters=TrainingParameters(epochs=1, steps_per_epoch=5, global_batch_size=4),
            strategy=tf.distribute.get_strategy(),
            directory=None,
            writes=writes,
            count_workers=lambda: 2,
            validates=False,
            hooks=Hooks(SimpleNamespace(notice=said.append)),
        )
        file_sharding.notice_unequal_files(loop, dataset)
    found[name] = said
order = file_names(datasets["listed"], 10)
assert sorted(order) == files == file_names(datasets["direct"], 5)
assert file_names(datasets["direct"], 4) is None
unread = [file_sharding.unread(*case) for case in (([0.7, 0.3], 1.0), ([0.7, 0.3], 0.5), ([0.5, 0.5], 2.0))]
print(json.dumps([found, *unread]))
"""


def test_what_can_be_told_of_files_is_told_once(tmp_path: Path) -> None:
    write(tmp_path, UNEQUAL)
    notices, *unread = _python(_NOTICES, str(tmp_path))
    assert unread == [pytest.approx(numbers) for numbers in ([0.2, 0.2], [0.5, 0.0], [0.0, 1.0])]
    names = {name for name, messages in notices.items() if messages}
    assert names == {"interleaved", "flat", "direct", "listed", "known"}
    assert all(len(messages) == 1 for name, messages in notices.items() if name in names)
    assert "leaves out about 20% of the data and reads 20% twice" in notices["flat"][0]
    # 5 steps of 4 examples are half of it.
    assert "an epoch of 5 steps leaves out about 50% of the data: use" in notices["known"][0]


def _python(code: str, *arguments: str) -> Any:
    return computed(code, *arguments)
