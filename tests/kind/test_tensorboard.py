"""A run's TensorBoard on a cluster with nodes: its pod reads the run's claim, and the port-forward leads to
it.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.api.plain_requests import wait_for
from tests.kind.runs import RUN, SECONDS, Runs


@contextmanager
def tunnel(runs: Runs) -> Iterator[str]:
    """The address that the command prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", "tensorboard", RUN, "--namespace", runs.namespace],
        env=runs.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match, process.communicate(timeout=SECONDS)
        yield match[0]
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def scalars(url: str) -> dict[str, set[str]]:
    """Returns the names of the curves that TensorBoard has read, by folder."""
    with urllib.request.urlopen(f"{url}data/plugin/scalars/tags", timeout=30) as answer:
        tags: dict[str, Any] = json.load(answer)
    return {folder: set(names) for folder, names in tags.items()}


def test_the_curves_while_it_trains_and_after_its_end(runs: Runs) -> None:
    runs.submit("spec.tensorboard={}")
    runs.trains()
    curves = {"epoch_accuracy", "epoch_loss"}
    with tunnel(runs) as url:
        assert wait_for(lambda: curves <= scalars(url).get("logs/train", set()), 120)
        runs.succeeds()
        assert wait_for(lambda: curves <= scalars(url).get("logs/evaluation", set()), 60)
    with tunnel(runs) as url:
        assert scalars(url).keys() >= {"logs/train", "logs/evaluation"}
    assert runs.of("delete").returncode == 0
    assert wait_for(lambda: not runs.left(), 90), runs.left()
    assert runs.of("tensorboard").returncode == 3
