"""Saves and resumes a checkpoint of 500 MB in a bucket, beside the library's own upload and download.

`python -m benchmarks.buckets` starts an S3 server on this machine (SeaweedFS); with AWS_ENDPOINT_URL and the
credentials in the environment, `--url s3://bucket/path` takes another. Each round does everything once, in
turns; the table has medians. A save should take at most 1.15 of the library's upload, a resume at most 1.15
of its download. TensorFlow's own part, on the local disk, is the same for every model directory, and stands
in columns of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import table
from tests.s3_server import BUCKET, s3_server
from worker.buckets.bucket import Bucket
from worker.buckets.mirror import MirroredFiles

_MEGABYTE = 1_000_000


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", help="such as s3://bucket/path")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4, help="even, as two things take turns (%(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _url(given.url, Path(folder)) as url:
        _measure(url, Path(folder), given.megabytes, given.rounds)


@contextlib.contextmanager
def _url(url: str | None, folder: Path) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with s3_server(folder / "server") as server:
        os.environ.update(server.environment())
        yield f"s3://{BUCKET}/benchmark"


def _measure(url: str, folder: Path, megabytes: int, rounds: int) -> None:
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Embedding(megabytes * _MEGABYTE // 4000, 1000)])
    model.build((None, 1))
    model.layers[0].embeddings.assign(tf.random.uniform(model.layers[0].embeddings.shape))
    model.compile("sgd", "mse")
    steps = _Steps(tf)
    alone = steps.rate(lambda: time.sleep(10))
    times: dict[str, list[float]] = {}
    for number in range(1, rounds + 1):
        _round(url, folder, model, number, steps, times)
    median = {name: statistics.median(values) for name, values in times.items()}
    rows = []
    for what, transfer, plain in (
        ("save", "upload", "plain upload"),
        ("resume", "download", "plain download"),
    ):
        disk, bucket, library = (median[name] for name in (what, transfer, plain))
        rows.append(
            [what, *(f"{value:.1f} s" for value in (disk, bucket, library)), f"{bucket / library:.2f}"]
        )
    print(f"A checkpoint of {megabytes} MB, medians of {rounds} rounds\n")
    print(table(["", "TensorFlow, on the disk", "bucket", "library alone", "ratio"], rows))
    print(f"\nSteps while it uploads: {median['steps/s']:.0f}/s; without an upload: {alone:.0f}/s")


def _round(
    url: str, folder: Path, model: Any, number: int, steps: _Steps, times: dict[str, list[float]]
) -> None:
    from worker.checkpoints.model_directory import ModelDirectory
    from worker.checkpoints.position import Position
    from worker.checkpoints.state_copy import StateCopy

    def timed(name: str, act: Callable[[], object]) -> None:
        began = time.perf_counter()
        act()
        times.setdefault(name, []).append(time.perf_counter() - began)

    def uploads() -> None:
        times.setdefault("steps/s", []).append(steps.rate(chief.files.settle))

    chief = ModelDirectory(url, files=MirroredFiles(Bucket(url), str(folder / "chief"), ("checkpoints",)))
    timed("save", lambda: chief.save(StateCopy.unread(model, Position(number))))
    timed("upload", uploads)
    local = next((folder / "chief" / "checkpoints").glob(f"ckpt-{number}.data-*"))
    timed("plain upload", lambda: steps.rate(lambda: _plain_upload(url, local)))
    files = MirroredFiles(Bucket(url), str(folder / "resumed"))
    downloads: dict[str, Callable[[], object]] = {
        "download": lambda: files.fetch_checkpoint(f"checkpoints/ckpt-{number}"),
        "plain download": lambda: _plain_download(url, folder / "plain"),
    }
    for name in sorted(downloads, reverse=number % 2 == 0):  # neither is always the first
        os.sync()  # what was written before would be written to the disk meanwhile
        timed(name, downloads[name])
    (folder / "plain").unlink()
    timed("resume", lambda: ModelDirectory(url, files=files).load(model, number))
    shutil.rmtree(folder / "resumed")


class _Steps:
    """Takes small steps of TensorFlow in a thread."""

    def __init__(self, tf: Any) -> None:
        values = tf.Variable(tf.random.uniform((256, 256)))

        @tf.function  # type: ignore[untyped-decorator]
        def step() -> None:
            values.assign(tf.linalg.l2_normalize(tf.matmul(values, values)))

        step()
        self._step = step

    def rate(self, act: Callable[[], object]) -> float:
        """Returns the steps per second while `act` runs in another thread."""
        thread = threading.Thread(target=act)
        began, count = time.perf_counter(), 0
        thread.start()
        while thread.is_alive():
            self._step()
            count += 1
        return count / (time.perf_counter() - began)


def _plain_upload(url: str, path: Path) -> None:
    import obstore

    obstore.put(_store(url), "plain", path)


def _plain_download(url: str, path: Path) -> None:
    import obstore

    with path.open("wb") as file:
        for chunk in obstore.get(_store(url), "plain").stream(min_chunk_size=8 << 20):
            file.write(chunk)


def _store(url: str) -> Any:
    from obstore.store import S3Store

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    http = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return S3Store(bucket, prefix=prefix, client_options={"allow_http": http})


if __name__ == "__main__":
    main()
