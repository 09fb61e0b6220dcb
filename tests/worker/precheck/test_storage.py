"""How fast a task writes and reads: a folder, S3 and Google's store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gcs_server import gcs_server, objects
from tests.s3_server import BUCKET, S3Server
from worker.buckets.bucket import Bucket, BucketError
from worker.precheck import storage


def test_a_folder(tmp_path: Path) -> None:
    rates = storage.measure_folder(tmp_path)
    assert rates.keys() == {"write", "read"}
    assert min(rates.values()) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=16 << 20))
    assert storage.measure_folder(tmp_path) == {}


def test_a_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/precheck"
    rates = storage.measure_url(url)
    assert rates.keys() == {"write", "read"}
    assert Bucket(url).items() == []


def test_a_bucket_that_is_not_there(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BucketError):
        storage.measure_url("s3://no-such-bucket/model")


def test_googles_store(tmp_path: Path) -> None:
    with gcs_server(tmp_path / "gcs") as environment:
        code = (
            "import json, sys; from worker.precheck import storage; "
            "print(json.dumps(storage.measure_url(sys.argv[1])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "gs://models/demo"],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            check=True,
        )
        assert json.loads(done.stdout).keys() == {"write", "read"}
        assert objects(environment, "demo") == []
