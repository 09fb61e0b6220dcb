"""Training with a model directory in a bucket, with TensorFlow and a real S3 s3."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.s3_server import BUCKET, SECRET, FaultyProxy
from tests.worker import model_files
from tests.worker.cluster import RunningTask
from tests.worker.conftest import MakeCluster
from worker.buckets.bucket import Bucket
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
SLOW = {"epochs": 3, "stepsPerEpoch": 20, "waitMilliseconds": 50}


def in_the_second_epoch(url: str, chief: RunningTask) -> None:
    def is_saved() -> bool:
        return "checkpoints/ckpt-1.index" in {item.name for item in Bucket(url).items("checkpoints")}

    chief.eventually(is_saved, "the first epoch is saved")
    chief.until(Event.PROGRESS)


def downloaded(url: str, directory: Path) -> Path:
    """Returns a copy of all that is in the bucket."""
    opened = Bucket(url)
    for item in opened.items():
        opened.download(item, directory / item.name)
    return directory


@pytest.mark.thorough
def test_a_chief_that_is_killed_while_it_uploads_resumes_from_the_checkpoint_before(
    make_cluster: MakeCluster, s3_proxy: FaultyProxy, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/killed"
    cluster = make_cluster(**ONE, model_dir=url, parameters=SLOW)
    s3_proxy.decide = lambda method, path: (
        "hang" if (method, path[-13:]) == ("PUT", "/ckpt-2.index") else "pass"
    )
    first = cluster.start("chief")
    first.eventually(s3_proxy.hanging.is_set, "the upload of the second checkpoint")
    first.until(Event.PROGRESS, epoch=3, epoch_end=True)  # the training goes on while it uploads
    first.kill()
    s3_proxy.decide = lambda method, path: "pass"
    names = {item.name for item in Bucket(url).items()}
    assert "checkpoints/ckpt-1.index" in names
    assert "checkpoints/ckpt-2.data-00000-of-00001" in names, "it was killed in the middle of a checkpoint"

    second = cluster.start("chief")
    assert second.until(Event.TRAINING).fields["initial_epoch"] == 1
    assert second.ended() == ExitCode.DONE, second.output
    assert second.until(Event.EXPORTED).fields["path"] == f"{url}/export/1"
    model = downloaded(url, tmp_path / "copy")
    assert model_files.epochs(model) == [1, 2, 3]
    assert model_files.iterations(model, 3) == 60
    assert model_files.state(model)["phase"] == "done"
    assert not (model / "lease.json").exists()
    assert list((model / "logs" / "train").glob("events.out.*"))
    loads = "import sys, tensorflow as tf; tf.saved_model.load(sys.argv[1])"
    subprocess.run([sys.executable, "-c", loads, str(model / "export" / "1")], check=True)
    latest = "import sys, tensorflow as tf; print(tf.train.latest_checkpoint(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", latest, str(model / "checkpoints")], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip().endswith("checkpoints/ckpt-3")
    assert SECRET not in first.output + second.output


@pytest.mark.nightly
@pytest.mark.thorough
def test_sigterm_saves_in_the_bucket_or_says_that_the_checkpoint_is_lost(
    make_cluster: MakeCluster, s3_proxy: FaultyProxy
) -> None:
    url = f"s3://{BUCKET}/told"
    cluster = make_cluster(**ONE, model_dir=url, parameters=SLOW, grace_seconds={"chief": 12})
    first = cluster.start("chief")
    in_the_second_epoch(url, first)
    s3_proxy.decide = lambda method, path: "503" if "/backup/" in path else "pass"
    first.signal(signal.SIGTERM)
    assert first.ended() == ExitCode.PREEMPTED, first.output
    assert "is lost: within the grace period (terminationGracePeriodSeconds) it could not be" in first.output
    s3_proxy.decide = lambda method, path: "pass"

    second = cluster.start("chief")
    assert second.until(Event.TRAINING).fields["initial_epoch"] == 1
    in_the_second_epoch(url, second)
    second.signal(signal.SIGTERM)
    assert second.ended() == ExitCode.PREEMPTED, second.output
    second.until_notice("SIGTERM: checkpoint saved at step ")

    third = cluster.start("chief")
    third.until(Event.PROGRESS)
    assert not [line for line in third.lines if "passed over" in line]
    assert third.ended() == ExitCode.DONE, third.output
    assert Bucket(url).children("backup")[0] == [], "the next epoch's checkpoint takes its place"
    assert SECRET not in first.output + second.output + third.output


def test_a_run_whose_bucket_refuses_it_says_so_in_one_message(
    make_cluster: MakeCluster, s3_proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"wrong-{SECRET}")
    task = make_cluster(**ONE, model_dir=f"s3://{BUCKET}/refused").start("chief")
    assert task.ended() == ExitCode.PROGRAM_ERROR, task.output
    (failed,) = task.records(Event.FAILED)
    message = failed.fields["message"]
    assert message.startswith("s3://models/refused: reading lease.json failed: SignatureDoesNotMatch: ")
    assert failed.fields["traceback"] == ""
    assert SECRET not in task.output


@pytest.mark.thorough
def test_a_program_reads_data_from_a_bucket(make_cluster: MakeCluster, s3_proxy: FaultyProxy) -> None:
    url = f"s3://{BUCKET}/numbers"
    for part in range(3):
        Bucket(url).write(f"train/part-{part}.csv", b"1\n2\n3\n4\n")
    parameters = {"epochs": 2, "stepsPerEpoch": 3, "globalBatchSize": 4, "dataDir": url}
    cluster = make_cluster(**ONE, entrypoint="lines:Lines", parameters=parameters)
    chief = cluster.start("chief")
    assert chief.ended() == ExitCode.DONE, chief.output
    doing = [record.fields["activity"] for record in chief.records(Event.DOING)]
    assert [f"listing {url}", f"copying {url}: 0 bytes of 24 bytes"] == [
        activity for activity in doing if url in activity
    ]
    assert sum(method == "GET" and "/train/part-" in path for method, path, _ in s3_proxy.requests) == 3
    assert SECRET not in chief.output
