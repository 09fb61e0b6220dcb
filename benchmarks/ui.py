"""What `ui` takes: from the command to the first page, bytes, and processor time while a browser shows it.
The runs are of this machine, and their processes only say that they train. Linux only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import processes, recording
from benchmarks.measuring import ENVIRONMENT, ROOT, table
from launcher.backends.local.store import SupervisorSettings
from tests.browser import browser
from tests.local.machine import Machine, job

RUNS: Final = 100
EPOCHS: Final = 1_000
SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 5.0
MARK: Final = "TF_LAUNCHER_BENCH_UI"
PAGES: Final = {
    f"the list of {RUNS} runs": "",
    f"a run that has ended, with {EPOCHS:,} epochs": "runs/local/default/long",
    "the same, while it goes on": "runs/local/default/running",
    "its log": "runs/local/default/running/logs/chief-0",
}
SPEAKS: Final = """
import sys, time
from worker.contract.records import Progress, Training, emit
name, epochs, goes_on = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "on"
emit(f"{name}-chief-0", Training(epochs=2 * epochs, steps_per_epoch=20, initial_epoch=0))
for epoch in range(1, epochs + 1):
    speed = {"step": 20, "steps": 20, "steps_per_second": 10.0, "epoch_end": True}
    emit(f"{name}-chief-0", Progress(epoch=epoch, epochs=2 * epochs, loss=1 / epoch, metrics={}, **speed))
while goes_on:
    time.sleep(1)
    epoch += 1
    emit(f"{name}-chief-0", Progress(epoch=epoch, epochs=2 * epochs, loss=1 / epoch, metrics={}, **speed))
"""


@contextmanager
def runs(directory: Path) -> Iterator[None]:
    """Many runs that have ended, one of them with many records, and one that goes on."""
    machine = Machine(directory / "tf-launcher", SupervisorSettings())
    try:
        for name, epochs, last in (("long", EPOCHS, "over"), ("running", EPOCHS, "on")):
            command = ["python", "-c", SPEAKS, name, str(epochs), last]
            machine.submit(job("chief", command, run=name, primary=True), run=name)
        machine.end("long")
        for number in range(RUNS - 2):
            name = f"run-{number}"
            machine.submit(job("chief", ["true"], run=name, primary=True), run=name)
            machine.end(name)
        yield
    finally:
        for status in machine.backend.runs():
            machine.backend.delete(status.run, status.namespace)


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """The command, the address that it prints, and after how many milliseconds."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "launcher", "ui", "--backend", "local"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    url = re.findall(r"http\S+", process.stdout.readline())[0]
    try:
        yield process, url, (time.perf_counter() - began) * 1000
    finally:
        process.terminate()
        process.communicate()


def get(url: str) -> tuple[float, int]:
    """The milliseconds until the page is there, and its bytes."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        return (time.perf_counter() - began) * 1000, len(answer.read())


def shares(url: str, command: int, profile: Path) -> tuple[float, float]:
    """The processor time of the command, and of a browser with this page, in percent of one core."""
    profile.mkdir()
    os.environ[MARK] = str(profile)
    with browser(profile) as page:
        page.open(url)
        time.sleep(SETTLE_SECONDS)

        def used() -> list[float]:
            # The processes of its pages have another environment.
            pids = processes.with_environment(f"{MARK}={profile}")
            its = processes.descendants(pids[0])
            return [processes.cpu_seconds(command), sum(map(processes.cpu_seconds, its))]

        before = used()
        time.sleep(SECONDS)
        mine, its = (100 * (after - then) / SECONDS for after, then in zip(used(), before, strict=True))
        return mine, its


def main() -> None:
    """Prints the table."""
    options = recording.parser("benchmarks.ui", __doc__ or "", 1).parse_args()
    with tempfile.TemporaryDirectory(prefix="ui-") as name, runs(Path(name)):
        ENVIRONMENT["XDG_STATE_HOME"] = name
        rows: list[tuple[str, ...]] = []
        for page, path in PAGES.items():
            with served() as (process, url, started):
                first, size = get(url + path)
                mine, its = shares(url + path, process.pid, Path(name, f"profile-{len(rows)}"))
            cells = (f"{started:.0f}", f"{first:.0f}", f"{size:,}", f"{mine:.1f}", f"{its:.1f}")
            rows.append((page, *cells))
    heads = ("page", "ms to the address", "ms to the page", "bytes", "% of a core", "browser's %")
    text = f"One tab, for {SECONDS:.0f} s each.\n\n{table(heads, rows)}"
    recording.publish("ui", text, record=options.record)


if __name__ == "__main__":
    main()
