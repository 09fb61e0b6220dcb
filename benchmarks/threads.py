"""Prints what TensorFlow's threads cost on a node that is full: one task for each processor of this machine,
each in a cgroup of the same weight, as pods have that request one processor.

By default TensorFlow makes a thread for each processor of the node, however few of them the pod has. `--node`
says how many processors the node is to have.

    python -m benchmarks.threads
    python -m benchmarks.threads --node 16 --seconds 20
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import recording
from benchmarks.measuring import table
from worker.process import cgroups
from worker.process.processors import INTRA_OP_THREADS, processors

TASK = """
import sys, time
import numpy as np, tensorflow as tf
seconds = float(sys.argv[1])
tf.keras.utils.set_random_seed(1)
layers = [tf.keras.layers.Dense(512, activation="relu") for _ in range(4)]
model = tf.keras.Sequential([tf.keras.Input((256,)), *layers, tf.keras.layers.Dense(10)])
optimizer = tf.keras.optimizers.Adam()
losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
examples = np.random.rand(4096, 256).astype("float32"), np.random.randint(0, 10, 4096)
batches = iter(tf.data.Dataset.from_tensor_slices(examples).repeat().batch(256).prefetch(tf.data.AUTOTUNE))

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = losses(y, model(x, training=True))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

for _ in range(10):
    step(*next(batches))
print("ready", flush=True)
sys.stdin.readline()
steps, began = 0, time.monotonic()
while time.monotonic() - began < seconds:
    step(*next(batches))
    steps += 1
print(steps / (time.monotonic() - began))
"""


def main() -> None:
    """Prints the table."""
    parser = recording.parser("benchmarks.threads", str(__doc__), 3)
    parser.add_argument("--node", type=int, default=64, help="processors of the node (%(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement (%(default)s)")
    options = parser.parse_args()
    counts = [*(count for count in (1, 2, 4) if count < options.node), options.node]
    speeds: dict[int, list[float]] = {threads: [] for threads in counts}
    for _ in range(options.rounds):
        for threads in counts:  # in turns, so that what else the machine does falls on all
            speeds[threads].append(measure(threads, options.seconds))
    medians = {threads: statistics.median(each) for threads, each in speeds.items()}
    rows = [
        (str(threads), f"{speed:.1f}", f"{speed / medians[options.node]:.2f}")
        for threads, speed in medians.items()
    ]
    text = (
        f"{processors()} tasks on {processors()} processors; TensorFlow makes {options.node} threads on a "
        f"node of so many. Medians of {options.rounds} rounds:\n\n"
        + table(("threads of a task", "steps/s of a task", "beside TensorFlow's default"), rows)
    )
    recording.publish("threads", text, record=options.record)


def measure(threads: int, seconds: float) -> float:
    """Returns the mean of all tasks' steps per second."""
    with contextlib.ExitStack() as stack:
        tasks = [
            subprocess.Popen(
                [sys.executable, "-c", TASK, str(seconds)],
                env={**os.environ, INTRA_OP_THREADS: str(threads), "TF_CPP_MIN_LOG_LEVEL": "3"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(processors())
        ]
        for number, task in enumerate(tasks):
            stack.enter_context(_weighed(task.pid, f"tf-launcher-threads-{os.getpid()}-{number}"))
        _answers(tasks)
        for task in tasks:
            assert task.stdin is not None
            task.stdin.write("go\n")
            task.stdin.flush()
        return statistics.mean(float(answer) for answer in _answers(tasks))


def _answers(tasks: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Returns the next line of each task."""
    answers = []
    for task in tasks:
        assert task.stdout is not None
        answers.append(task.stdout.readline())
    return answers


@contextlib.contextmanager
def _weighed(process: int, name: str) -> Iterator[None]:
    """Has the process in a cgroup of its own, where one can be made; new ones have the same weight."""
    folders = cgroups.folders("cpu")
    folder = (folders[0] if folders else Path("/nowhere")) / name
    try:
        folder.mkdir()
        (folder / "cgroup.procs").write_text(str(process))
    except OSError as error:
        print(f"no cgroup of its own: {error}", file=sys.stderr)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.waitpid(process, 0)
        with contextlib.suppress(OSError):
            folder.rmdir()


if __name__ == "__main__":
    main()
