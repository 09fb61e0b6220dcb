"""The processors of a container: what its limit on CPU leaves, and TensorFlow's threads for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker.process.container import cgroup, inside, write
from worker.contract.environment import Env
from worker.process import processors
from worker.process.processors import INTRA_OP_THREADS, thread_variables

TENTH = (("cpu.max", "10000 100000"), ("cpu.cfs_quota_us", "10000"))
"""A tenth of a processor."""


def test_a_process_that_the_limit_on_cpu_holds_up() -> None:
    code = """
import time
from worker.process.processors import throttled
before, until = throttled(), time.monotonic() + 30.0
while time.monotonic() < until and throttled() - before <= 0.1: pass
print(throttled() - before)
"""
    with cgroup("cpu") as folder:
        write(folder, *TENTH)
        assert inside(folder, code) > 0.1


@pytest.mark.skipif(processors.processors() == 1, reason="one processor: TensorFlow makes one thread anyway")
def test_a_container_with_a_limit_on_cpu_has_a_thread_for_each_processor_of_it() -> None:
    code = """
from worker.process.processors import quota, thread_variables
print((quota(), thread_variables(16.0, {})))
"""
    with cgroup("cpu") as folder:
        write(folder, *TENTH)
        assert inside(folder, code) == (0.1, {INTRA_OP_THREADS: "1"})


@pytest.mark.parametrize(
    ("request_", "limit", "environ", "threads"),
    [
        (None, None, {}, None),
        (8.0, None, {}, "16"),
        (0.5, None, {}, "4"),
        (2.5, None, {}, "5"),
        (2.0, 2.5, {}, "3"),
        (None, 6.0, {}, "6"),
        (40.0, None, {}, None),
        (None, 64.0, {}, None),
        (8.0, None, {INTRA_OP_THREADS: "64"}, None),
        (8.0, None, {Env.LOCAL: "1"}, None),
    ],
)
def test_threads_on_a_node_of_64_processors(
    request_: float | None,
    limit: float | None,
    environ: dict[str, str],
    threads: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processors, "processors", lambda: 64)
    monkeypatch.setattr(processors, "quota", lambda: limit)
    variables = {} if threads is None else {INTRA_OP_THREADS: threads}
    assert thread_variables(request_, environ) == variables


def test_tensorflow_makes_the_threads_that_the_variable_says() -> None:
    code = "import os, tensorflow as tf; tf.constant(1) + 1; print(len(os.listdir('/proc/self/task')))"

    def count(threads: int) -> int:
        environment = {**os.environ, INTRA_OP_THREADS: str(threads), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-c", code]
        return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    assert count(23) - count(3) == 20
