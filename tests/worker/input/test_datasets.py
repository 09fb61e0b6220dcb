"""The data of replicas and tasks, and the messages about data that cannot be used."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.worker import tfrecords
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

pytestmark = pytest.mark.thorough

SAMPLES = 40
"""As in programs/recorded.py; its evaluation dataset has nine less."""
BATCH = 8


def seen(directory: Path, what: str) -> dict[str, list[int]]:
    """Which samples each task had, in its order."""
    return {
        path.name.removeprefix(f"{what}-"): [
            int(word) for word in path.read_text().translate(_SPACES).split()
        ]
        for path in directory.glob(f"{what}-*")
    }


_SPACES = {ord("["): " ", ord("]"): " "}


def write_files(directory: Path, count: int) -> None:
    share = SAMPLES // count
    for index in range(count):
        numbers = range(index * share, (index + 1) * share)
        tfrecords.write(directory / f"{index}.tfrecord", [str(number).encode() for number in numbers])


def recorded(directory: Path, files: int, **options: Any) -> dict[str, Any]:
    """Options of a cluster for one epoch over `files` files."""
    write_files(directory, files)
    parameters = {"directory": str(directory), "files": files, "epochs": 1, "globalBatchSize": BATCH}
    return {
        "strategy": "MultiWorkerMirrored",
        "entrypoint": "recorded:Recorded",
        "parameters": {**parameters, "stepsPerEpoch": SAMPLES // BATCH},
        **options,
    }


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("policy", "files", "replicas"),
    [
        ("FILE", 4, {"worker": 2}),
        ("DATA", 4, {"chief": 1, "worker": 1}),
        ("OFF", 4, {"worker": 2}),
        # TensorFlow's own AUTO takes FILE here, and fails.
        ("AUTO", 1, {"chief": 1, "worker": 2}),
    ],
)
def test_how_the_samples_are_shared_out(
    make_cluster: MakeCluster, tmp_path: Path, policy: str, files: int, replicas: dict[str, int]
) -> None:
    size = {"globalBatchSize": BATCH} if sum(replicas.values()) == 2 else {"globalBatchSize": 12}
    options = recorded(tmp_path, files, replicas=replicas, strategy_options={"autoShard": policy})
    options["parameters"] |= size | {"stepsPerEpoch": SAMPLES // size["globalBatchSize"]}
    cluster = make_cluster(**options)
    tasks = cluster.start_all()
    assert {task.ended() for task in tasks.values()} == {0}

    trained = seen(tmp_path, "trained")
    assert len(trained) == len(tasks)
    share = size["globalBatchSize"] // len(tasks) * (SAMPLES // size["globalBatchSize"])
    assert {len(samples) for samples in trained.values()} == {share}
    together = Counter(number for samples in trained.values() for number in samples)
    if policy == "FILE":
        per_file = SAMPLES // files
        read = [{number // per_file for number in samples} for samples in trained.values()]
        assert all(len(files_read) == files // 2 for files_read in read)
        assert not read[0] & read[1], "no file is read by two"
        assert together == Counter(range(SAMPLES))
    elif policy == "OFF":
        first, second = trained.values()
        assert first == second, "everyone begins at the beginning"
    else:
        assert max(together.values()) == 1, "no sample is given twice"
        assert len(together) == share * len(tasks)

    evaluated = seen(tmp_path, "evaluated")
    assert Counter(number for samples in evaluated.values() for number in samples) == Counter(
        range(SAMPLES - 9)
    ), "each once, however the training data is shared out"


@pytest.mark.parametrize(("files", "read"), [(1, "reads 1;"), (0, "reads none;")])
def test_sharing_out_files_that_are_not_there(
    make_cluster: MakeCluster, tmp_path: Path, files: int, read: str
) -> None:
    options = recorded(tmp_path, files or 1, replicas={"worker": 2}, strategy_options={"autoShard": "FILE"})
    options["parameters"]["files"] = files
    tasks = make_cluster(**options).start_all()
    assert {task.ended() for task in tasks.values()} == {ExitCode.PROGRAM_ERROR}
    for task in tasks.values():
        (failed,) = task.records(Event.FAILED)
        assert failed.fields["message"].startswith(
            "spec.strategyOptions.autoShard: FILE needs a file for each of the 2 tasks that train"
        )
        assert read in failed.fields["message"]


ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
MIRRORED = {"strategy": "Mirrored", "strategy_options": {"logicalCpus": 3}, "replicas": {"chief": 1}}


@pytest.mark.parametrize(
    ("options", "parameters", "message"),
    [
        (
            {**MIRRORED, "entrypoint": "tiny:Tiny"},
            {"globalBatchSize": 20},
            "spec.program.parameters.globalBatchSize: 20 cannot be divided by 3 replicas; use 18 or 21",
        ),
        (
            {**ONE, "entrypoint": "short:Short"},
            {"source": "read once", "stepsPerEpoch": 7},
            (
                "short:Short: train_dataset(20) ended before the 7 steps of epoch 1 were done, and gives "
                "nothing when it is read again; make it from a source that can be read twice, end it with "
                ".repeat(), or lower spec.program.parameters.stepsPerEpoch"
            ),
        ),
        (
            {**ONE, "entrypoint": "short:Short"},
            {"source": "nothing", "stepsPerEpoch": 7},
            "short:Short: train_dataset(20) is empty",
        ),
        (
            {**ONE, "entrypoint": "short:Short"},
            {"source": "endless", "stepsPerEpoch": None},
            (
                "spec.program.parameters.stepsPerEpoch: needed, because the training dataset is infinite, "
                "or a generator"
            ),
        ),
    ],
    ids=["indivisible", "read once", "empty", "infinite"],
)
def test_data_that_will_not_do(
    make_cluster: MakeCluster, options: dict[str, Any], parameters: dict[str, Any], message: str
) -> None:
    chief = make_cluster(**options, model_dir=None, parameters=parameters).start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert failed.fields["message"] == message


@pytest.mark.parametrize(
    ("options", "first"),
    [
        pytest.param({"replicas": {"chief": 1, "worker": 1, "ps": 1}}, "chief", marks=pytest.mark.thorough),
        ({"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}, "worker"),
    ],
    ids=["servers", "workers"],
)
def test_data_without_an_end_are_told_before_the_other_tasks_are_there(
    make_cluster: MakeCluster, options: dict[str, Any], first: str
) -> None:
    parameters = {"source": "endless", "stepsPerEpoch": None}
    options |= {"entrypoint": "short:Short", "parameters": parameters}
    task = make_cluster(**options).start(first)
    failed = task.until(Event.FAILED)
    assert failed.fields["message"].startswith("spec.program.parameters.stepsPerEpoch: needed")
    assert task.output.count("needed, because") == 1
    if first == "worker":  # a chief waits for its servers, to end them
        assert task.ended() == ExitCode.PROGRAM_ERROR


@pytest.mark.by_day(runtime=("workers",))
@pytest.mark.parametrize(
    "options",
    [
        ONE,
        pytest.param({"replicas": {"chief": 1, "worker": 1, "ps": 1}}, marks=pytest.mark.thorough),
        {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}},
    ],
    ids=["one", "servers", "workers"],
)
def test_an_epoch_of_data_of_unknown_size_is_a_pass(
    make_cluster: MakeCluster, options: dict[str, Any]
) -> None:
    parameters = {"source": "unknown size", "stepsPerEpoch": None, "stepsPerExecution": 2, "epochs": 2}
    cluster = make_cluster(entrypoint="short:Short", model_dir=None, parameters=parameters, **options)
    tasks = cluster.start_all()
    first = tasks.get(("chief", 0)) or tasks["worker", 0]
    assert first.ended() == 0
    assert [
        record.fields["step"] for record in first.records(Event.PROGRESS) if record.fields["epoch_end"]
    ] == [5, 5]
