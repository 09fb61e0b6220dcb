"""A run whose model directory is in a bucket: killed while it uploads, and resumed on another machine."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.machine import eventually, linux_only
from tests.local.whole.test_demo import EXAMPLE, Demo
from tests.s3_server import BUCKET, SECRET, S3Server, faulty, s3_server
from worker.buckets.bucket import Bucket

URL = f"s3://{BUCKET}/demo"
pytestmark = linux_only


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as server:
        yield server


def submit(demo: Demo, endpoint: str, *more: str) -> tuple[str, ...]:
    fields = {"modelDir": URL, "storage": json.dumps({"endpoint": endpoint, "secretName": "minio"})}
    given = [f"--set=spec.{name}={value}" for name, value in fields.items()]
    return (
        "submit",
        str(EXAMPLE),
        "--backend",
        "local",
        "--set=spec.program.parameters.epochs=3",
        *given,
        *more,
    )


@pytest.mark.thorough
def test_a_run_is_resumed_on_another_machine_from_the_bucket_alone(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = Demo(tmp_path / "one"), Demo(tmp_path / "two")
    with faulty(server) as proxy:
        hung = ("PUT", f"/{BUCKET}/demo/checkpoints/ckpt-2.index")
        proxy.decide = lambda method, path: "hang" if (method, path) == hung else "pass"
        started = first.launcher(*submit(first, proxy.url, "--detach"))
        assert started.returncode == 0, started.stdout + started.stderr
        try:
            eventually(proxy.hanging.is_set, "the upload of the second checkpoint")
            printed = first.launcher("logs", "fashion-mnist", "--raw").stdout
        finally:
            first.launcher("delete", "fashion-mnist")  # with the upload under way
        assert first.tasks() == []
    names = {item.name for item in Bucket(URL).items("checkpoints")}
    assert {"checkpoints/ckpt-1.index", "checkpoints/checkpoint"} <= names
    assert "checkpoints/ckpt-2.index" not in names

    try:
        done = second.launcher(*submit(second, server.url))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{URL} holds an earlier run that did not finish: resuming from epoch 1" in done.stdout
        assert f"exported the model to {URL}/export/1" in done.stdout
        copied = second.launcher("cp", "fashion-mnist:export", str(tmp_path / "model"))
        assert copied.returncode == 0, copied.stderr
        assert (tmp_path / "model" / "1" / "saved_model.pb").is_file()
        report = second.launcher("report", "fashion-mnist", "-o", str(tmp_path / "two" / "report.html"))
        assert report.returncode == 0, report.stderr
        shown = second.launcher("describe", "fashion-mnist").stdout
        assert URL in shown
        for text in (printed, done.stdout, done.stderr, shown):
            assert SECRET not in text
        for folder in ("one", "two"):
            files = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
            assert files
            assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    finally:
        second.launcher("delete", "fashion-mnist")


@pytest.mark.thorough
def test_what_is_read_from_a_bucket_needs_credentials_of_ones_own(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launcher.backends.board_process import BoardProcess
    from launcher.backends.bucket_files import BucketFiles, LogsMirror
    from launcher.errors import BackendError

    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    storage = {"endpoint": server.url}
    bucket = Bucket(URL)
    for name in ("run-state.json", "checkpoints/ckpt-1.index", "checkpoints/ckpt-1.data-00000-of-00001"):
        bucket.write(name, b"{}")
    bucket.write("checkpoints/ckpt-2.data-00000-of-00001", b"the index is not there yet")
    bucket.write("logs/train/events.out.tfevents.1.host.1.0.v2", b"")
    files = BucketFiles(URL, storage)
    assert files.names("checkpoints") == [
        "checkpoints/ckpt-1.data-00000-of-00001",
        "checkpoints/ckpt-1.index",
    ]
    files.copy("", tmp_path / "all")
    assert sorted(path.name for path in (tmp_path / "all" / "checkpoints").iterdir()) == [
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
    ]
    logs = LogsMirror(files, tmp_path / "board")
    bucket.write("logs/train/events.out.tfevents.1.host.1.0.v2", b"it has grown")
    logs.renew()
    logs.close()
    (shown,) = [path for path in (tmp_path / "board").rglob("*") if path.is_file()]
    assert shown.read_bytes() == b"it has grown"
    with BoardProcess("demo", URL, 0, storage) as board, urllib.request.urlopen(board.url) as page:
        assert page.status == 200
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(BackendError, match="SignatureDoesNotMatch") as refused:
        BucketFiles(URL, storage).names("")
    assert "export AWS_ACCESS_KEY_ID" in str(refused.value.hint)
