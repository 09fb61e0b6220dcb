"""A task whose memory grows towards its limit is named, and one that does something else is not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest

from tests.worker.cluster import ROOT
from tests.worker.process.container import cgroup, write
from worker.supervisor.memory_growth import MemoryGrowth

MIB = 1 << 20
LIMIT = 4096 * MIB
LIMITS = tuple((name, str(256 * MIB)) for name in ("memory.max", "memory.limit_in_bytes"))


def sentences(
    used: Callable[[float], float], seconds: Iterable[float] = range(0, 3600, 2)
) -> list[tuple[float, str]]:
    """Returns what is said, and when, of a task that has `used` MiB at a second."""
    growth = MemoryGrowth()
    each = [(at, growth.measured(int(used(at) * MIB), LIMIT, 1000.0 + at)) for at in seconds]
    return [(at, sentence) for at, sentence in each if sentence is not None]


def test_steady_growth_is_told_with_the_time_that_is_left() -> None:
    (at, sentence), (full_at, full) = sentences(lambda second: 1000 + second)
    # 60 MiB a minute reach the limit at second 3,096, and 15 minutes before are told.
    assert 2140 <= at <= 2200
    assert re.match(
        r"uses 3\.1 of the 4\.0 GiB of memory that it may have, 6\d MiB more every minute", sentence
    )
    assert "in about 15 min" in sentence
    assert "raise the memory in resources" in sentence
    assert full_at == pytest.approx(0.9 * 4096 - 1000, abs=2)
    assert "uses 3.6 of the 4.0 GiB" in full


def test_growth_below_half_of_the_limit_is_told_once() -> None:
    (at, sentence), _ = sentences(lambda second: 300 + 5 * second)
    assert at < 200
    assert "uses 0.9 of" in sentence


def test_fast_growth_is_told_at_nine_tenths() -> None:
    ((at, sentence),) = sentences(lambda second: min(4000.0, 1000 + 100 * second))
    assert at == 28
    assert "at the limit the kernel ends it" in sentence


@pytest.mark.parametrize(
    "used",
    [
        lambda second: 3500.0,
        lambda second: min(3500.0, 100 * second),
        lambda second: 2000 + 1500 * (second % 60 > 40),
        lambda second: 1500 + 10 * (second % 100),
        lambda second: 1000 + second / 10,
        lambda second: min(100 * second, 800 + second / 10),
    ],
    ids=["much", "start", "copies of checkpoints", "saw", "slow", "start and slow"],
)
def test_what_does_not_reach_the_limit_is_not_told(used: Callable[[float], float]) -> None:
    assert sentences(used) == []


def test_a_new_process_is_told_of_anew() -> None:
    warnings = sentences(lambda second: 1000 + 40 * (second % 80))
    assert len(warnings) == len(range(0, 3600, 80))


def test_a_task_in_a_container_is_named_before_the_kernel_ends_it() -> None:
    task = f"""
import sys, time
open(sys.argv[1], "w").write("0")
sys.path.insert(0, {str(ROOT)!r})
from worker.supervisor import memory_growth
memory_growth.follow(lambda sentence: print(sentence, flush=True))
kept = []
while True:
    kept.append(bytearray({4 * MIB}))
    for page in range(0, {4 * MIB}, 4096): kept[-1][page] = 1
    time.sleep(0.4)
"""
    with cgroup("memory") as folder:
        write(folder, *LIMITS)
        command = [sys.executable, "-c", task, str(folder / "cgroup.procs")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    assert re.match(r"uses \d+ of the \d+ MiB of memory that it may have", done.stdout)
