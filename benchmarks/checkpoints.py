"""What a checkpoint costs a training: the pause, the steps beside it, and a chief's memory.

`python -m benchmarks.checkpoints` trains a model of `--megabytes` with Adam's two slots in this process, so
that its state is three times that. For each place (this disk, one that writes 100 MB/s, an S3 server and
Google's test server on this machine) it takes `--rounds` checkpoints, and prints medians: of the pause until
the training may go on, of how much longer the next step takes than others, since it copies what is held, and
of the time until the checkpoint is there. Pause and longer step should take at most 1.2 times a copy of the
state in memory. The training goes on meanwhile: with a checkpoint a minute it should be slower by 2% at most,
and as much is what a checkpoint takes of the processors. A server on this machine takes of them, too.

Then a chief saves a table of `--megabytes` that lies on two parameter servers, and resumes: its peak of
memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import recording
from benchmarks.measuring import table
from tests.gcs_server import BUCKET as GCS_BUCKET
from tests.gcs_server import gcs_server
from tests.s3_server import BUCKET, s3_server
from worker.contract.environment import HUGE_PAGES

_LAYER_MEGABYTES = 50
_SLOW_BYTES = 100_000_000
"""A second."""
_CGROUPS = Path("/sys/fs/cgroup/blkio")


def main() -> None:
    """Prints the tables."""
    if HUGE_PAGES[0] not in os.environ:
        # As in a task. The C library reads it when a process starts.
        command = [sys.executable, "-m", "benchmarks.checkpoints", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **dict([HUGE_PAGES])})
    parser = recording.parser("benchmarks.checkpoints", str(__doc__), 5)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--place", action="append", choices=[*_PLACES, "chief"], help="all, if left out")
    given = parser.parse_args()
    chosen = given.place or [*_PLACES, "chief"]
    with tempfile.TemporaryDirectory() as folder:
        if "slow disk" in chosen and not (os.access(_CGROUPS, os.W_OK) and shutil.which("mkfs.ext4")):
            print("no slow disk: that needs root, cgroups of version 1 and mkfs.ext4", file=sys.stderr)
            chosen.remove("slow disk")
        if set(chosen) & set(_PLACES):
            places = [name for name in _PLACES if name in chosen]
            text = _pauses(Path(folder), given.megabytes, given.rounds, places)
            recording.publish("checkpoints", text, record=given.record)
        if "chief" in chosen:
            _memory(Path(folder), given.megabytes)


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[str]:
    yield str(folder / "disk")


@contextlib.contextmanager
def _slow_disk(folder: Path) -> Iterator[str]:
    """A file system whose writes are done when they return, and which the kernel slows down."""
    image, mounted, group = folder / "slow.img", folder / "slow", _CGROUPS / f"slow-{os.getpid()}"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(40 << 30)
    with contextlib.ExitStack() as stack:
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        subprocess.run(["mount", "-o", "loop,sync", image, mounted], check=True)
        stack.callback(subprocess.run, ["umount", "-d", str(mounted)])
        group.mkdir()
        stack.callback(group.rmdir)
        where = mounted.stat().st_dev
        limit = f"{os.major(where)}:{os.minor(where)} {_SLOW_BYTES}"
        (group / "blkio.throttle.write_bps_device").write_text(limit)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        stack.callback((_CGROUPS / "cgroup.procs").write_text, str(os.getpid()))
        yield str(mounted / "model")


@contextlib.contextmanager
def _s3(folder: Path) -> Iterator[str]:
    with s3_server(folder / "s3", gigabytes=20) as server:
        os.environ.update(server.environment())
        yield f"s3://{BUCKET}/benchmark"


@contextlib.contextmanager
def _gcs(folder: Path) -> Iterator[str]:
    with gcs_server(folder / "gcs", in_memory=False) as environment:
        os.environ.update(environment)
        yield f"gs://{GCS_BUCKET}/benchmark"


_PLACES: dict[str, Callable[[Path], Any]] = {
    "disk": _disk,
    "slow disk": _slow_disk,
    "s3://": _s3,
    "gs://": _gcs,
}


def _pauses(folder: Path, megabytes: int, rounds: int, places: list[str]) -> str:
    import numpy as np

    training = Training(megabytes)
    state = np.ones(3 * megabytes * 250_000, np.float32)
    copies = [_seconds(state.copy) for _ in range(5)]
    copied = statistics.median(copies)
    del state
    rows = []
    for name in places:
        with _PLACES[name](folder) as url:
            measurements = training.saved(url, rounds)
        pause, longer, written, slower, used, plain = map(statistics.median, zip(*measurements, strict=True))
        ratio = (pause + max(0.0, longer)) / copied
        numbers = [f"{1000 * pause:.0f} ms", f"{longer:.2f} s", f"{ratio:.2f}", f"{written:.1f} s"]
        shares = [f"{max(0.0, each) / 60:.1%}" for each in (slower, used)]
        rows.append([name, *numbers, *shares, f"{plain:.1f} s" if plain else "-"])
    step = statistics.median(training.steps)
    caption = (
        f"A model of {megabytes} MB with Adam's slots; a step takes {step:.2f} s, a copy {copied:.2f} s."
    )
    head = ["place", "pause", "next step longer by", "both, in copies", "there after"]
    head += ["slower, at one a minute", "of the processors", "Checkpoint.write"]
    return f"{caption}\n\n{table(head, rows)}"


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


class Training:
    """A model of so many megabytes, and a `step` of it."""

    def __init__(self, megabytes: int) -> None:
        import keras
        import tensorflow as tf

        side = int((_LAYER_MEGABYTES * 250_000) ** 0.5)
        layers = [keras.layers.Dense(side, use_bias=False) for _ in range(megabytes // _LAYER_MEGABYTES)]
        self.model = keras.Sequential([keras.Input((side,)), *layers])
        self.model.compile(keras.optimizers.Adam(1e-6), "mse")
        self.model.optimizer.build(self.model.trainable_variables)
        batch = tf.ones([1, side])

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.model(batch) ** 2)
            variables = self.model.trainable_variables
            self.model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        self.step = step
        self.steps: list[float] = []
        for _ in range(2):
            step()

    def saved(self, url: str, rounds: int) -> list[tuple[float, float, float, float, float, float]]:
        """Returns the seconds of each checkpoint: of the pause, how much longer the next step took, until it
        was there, which the training was later by then, which the processors spent on it, and by TensorFlow's
        own function, 0 where that cannot write there.
        """
        import tensorflow as tf

        from worker.checkpoints.files import open_files
        from worker.checkpoints.model_directory import FOLDERS, ModelDirectory
        from worker.checkpoints.position import Position
        from worker.checkpoints.state_copy import StateCopy

        directory = ModelDirectory(url, files=open_files(url, FOLDERS, patience=60.0))
        measurements = []
        for number in range(1, rounds + 1):
            plain = 0.0
            if not directory.files.is_mirrored and not url.startswith("gs://"):
                # Google's test server does not copy gigabytes in the time that the client waits for.
                checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
                plain = _seconds(lambda: checkpoint.write(directory.path("plain", "ckpt")))  # noqa: B023
            os.sync()
            used = time.process_time()
            steps = [_seconds(self.step) for _ in range(4)]
            step, step_used = statistics.median(steps), (time.process_time() - used) / len(steps)
            self.steps += steps
            began, used = time.perf_counter(), time.process_time()
            copy = StateCopy.of(self.model, Position(0, number))
            pause = time.perf_counter() - began

            def write(copy: StateCopy = copy) -> None:
                directory.back_up(copy)
                directory.files.settle()

            taken = [_seconds(self.step)]
            with ThreadPoolExecutor(1) as pool:
                written = pool.submit(write)
                while not written.done():
                    taken.append(_seconds(self.step))
            written.result()
            whole = time.perf_counter() - began
            later = whole - len(taken) * step
            spent = (time.process_time() - used - len(taken) * step_used) / (os.cpu_count() or 1)
            measurements.append((pause, taken[0] - step, whole, later, spent, plain))
            print(f"{url}: {measurements[-1]}", file=sys.stderr)
            del copy
        with contextlib.suppress(tf.errors.OpError, OSError):
            shutil.rmtree(directory.root, ignore_errors=True)
        return measurements


_SERVER = """
import json, sys, time
import tensorflow as tf
cluster, role, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=role, task_index=index, protocol="grpc")
time.sleep(3600)
"""

_CHIEF = """
import json, os, re, sys
from pathlib import Path
import tensorflow as tf
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
cluster, how, folder, megabytes = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(),
    tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
)
device = "/job:chief/replica:0/task:0/device:CPU:0"
whole = [megabytes * 250, 1000]
with strategy.scope():
    table = tf.Variable(
        lambda partition_shape=None, partition_offset=None: tf.ones(partition_shape or whole),
        shape=tf.TensorShape(whole), dtype=tf.float32, name="table")
model = tf.Module()
model.optimizer, model.table = None, table


def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000


options = tf.train.CheckpointOptions(experimental_io_device=device)
Path("/proc/self/clear_refs").write_text("5")
before = peak()
if how == "saved by the runtime":
    StateCopy.of(model, Position(0, 1)).write(f"{folder}/parts", device)
elif how == "saved by Checkpoint.write":
    tf.train.Checkpoint(root=model).write(f"{folder}/whole", options=options)
else:
    tf.train.Checkpoint(root=model).read(f"{folder}/parts", options=options).assert_existing_objects_matched()
print(json.dumps([before, peak()]), flush=True)
os._exit(0)
"""


def _memory(folder: Path, megabytes: int) -> None:
    rows = []
    for how in ("saved by Checkpoint.write", "saved by the runtime", "resumed"):
        cluster = {"chief": [_free()], "worker": [_free()], "ps": [_free(), _free()]}
        servers = [
            subprocess.Popen([sys.executable, "-c", _SERVER, json.dumps(cluster), role, str(index)])
            for role, index in (("worker", 0), ("ps", 0), ("ps", 1))
        ]
        try:
            command = [sys.executable, "-c", _CHIEF, json.dumps(cluster), how, str(folder), str(megabytes)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
            before, peak = json.loads(done.stdout.splitlines()[-1])
        finally:
            for server in servers:
                server.kill()
                server.wait()
        rows.append([how, f"{before:.0f} MB", f"{peak:.0f} MB", f"{peak - before:.0f} MB"])
    print(f"\nThe memory of a chief, with a table of {megabytes} MB on two parameter servers\n")
    print(table(["how", "memory before", "peak", "more"], rows))


def _free() -> str:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"localhost:{made.getsockname()[1]}"


if __name__ == "__main__":
    main()
