"""What the command line takes: start-up against bare Python, and `render` as the cluster grows, beside the
template of tensorflow/ecosystem and the TF_CONFIG that the pods of a TFJob carry.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import ecosystem, recording, tf_config
from benchmarks.measuring import ENVIRONMENT, LIBRARIES, ROOT, interleaved, table

DEMO = "examples/fashion-mnist/cluster.yaml"
SIZES = (10, 100, 1_000, 10_000)
PS = 4
LISTED = 1_000
MOST_SECONDS, MOST_BYTES = 60, 4 * 2**30
"""For the template, whose output grows with the square of the workers."""

# Of a small process, since what a process held before it became another counts as the other's.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class Printed(NamedTuple):
    """What a command printed, and how."""

    objects: int
    bytes: int
    addresses: int
    """Bytes that tell the tasks of each other: TF_CONFIG, or the template's flags; over all pods."""
    tfjob: int
    """Bytes of TF_CONFIG if every pod had a TFJob's full list."""
    peak: float
    """Megabytes of the process."""


def main() -> None:
    """Measures and prints."""
    parser = recording.parser("benchmarks.cli", str(__doc__), 15)
    parser.add_argument("--ecosystem", type=Path, metavar="PATH", help="a checkout of tensorflow/ecosystem")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        text = measured(options.rounds, options.ecosystem, Path(name))
    recording.publish("cli", text, record=options.record)


def measured(rounds: int, checkout: Path | None, directory: Path) -> str:
    """The tables; `checkout` is that of tensorflow/ecosystem."""
    starts = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "--help": [sys.executable, "-m", "launcher", "--help"],
        "pydantic, Jinja2 and PyYAML alone": [sys.executable, "-c", LIBRARIES],
        "render, the demo": render(),
        # What launcher/backends/kubernetes/api_server/transport.py imports, beside Python's own client.
        "import http.client, ssl": [sys.executable, "-c", "import http.client, ssl"],
        "import urllib3": [sys.executable, "-c", "import urllib3"],
    }
    ours = {f"render, {workers:,} workers": render(*sized(workers)) for workers in SIZES}
    theirs = {}
    if checkout is not None:
        theirs = {
            f"the template, {workers:,} workers": ecosystem.command(checkout, directory, workers, PS)
            for workers in SIZES
        }
    printed = {name: rendered(command) for name, command in ours.items()}
    exceeded = {}
    for name, command in theirs.items():
        output = directory / "printed"
        if limit := _exceeded(command, output):
            exceeded[name] = limit
        else:
            printed[name] = Printed(*ecosystem.read(output), 0, _peak(command))
        output.unlink()
    commands = {**starts, **ours, **theirs}
    ms = interleaved({name: commands[name] for name in commands if name not in exceeded}, rounds)
    bare = ms["python -c pass"]
    start = [
        (name, f"{ms[name]:.0f}", f"{ms[name] / bare:.2f}", limit)
        for name, limit in (
            ("--help", "6"),
            ("pydantic, Jinja2 and PyYAML alone", ""),
            ("render, the demo", "25"),
            ("import http.client, ssl", ""),
            ("import urllib3", ""),
        )
    ]
    few, many = f"render, {SIZES[0]:,} workers", f"render, {SIZES[-1]:,} workers"

    def row(name: str, base: str) -> Sequence[str]:
        if name in exceeded:
            return name, exceeded[name], *[""] * 6
        made = printed[name]
        numbers = (f"{made.peak:.0f}", f"{made.objects:,}", f"{made.bytes:,}", f"{made.addresses:,}")
        limit = "1.5" if name == many else ""
        return name, f"{ms[name]:.0f}", f"{ms[name] / ms[base]:.2f}", limit, *numbers

    heads = ("printed by", "ms", "to 10", "should be under", "peak MB", "objects", "bytes", "of addresses")
    rows = [row(name, few) for name in ours]
    rows += [row(name, next(iter(theirs))) for name in theirs]
    lists = [
        (
            f"{workers:,}",
            f"{printed[name].addresses:,}",
            f"{printed[name].tfjob:,}",
            f"{printed[name].tfjob / printed[name].addresses:,.1f}",
            "200" if workers == LISTED else "",
        )
        for workers, name in zip(SIZES, ours, strict=True)
    ]
    return (
        f"Medians of {rounds} rounds; `python -c pass`: {bare:.1f} ms.\n\n"
        f"{table(('command', 'ms', 'to python -c pass', 'should be under'), start)}\n\n"
        f"{table(heads, rows)}\n\n"
        + table(("workers", "bytes of TF_CONFIG", "a TFJob's", "times fewer", "should be at least"), lists)
    )


def render(*arguments: str) -> list[str]:
    """The command that renders the demo."""
    return [sys.executable, "-m", "launcher", "render", DEMO, *arguments]


def sized(workers: int) -> list[str]:
    """The flags for so many workers."""
    return [f"--set=spec.worker.replicas={workers}", f"--set=spec.ps.replicas={PS}"]


def rendered(command: Sequence[str]) -> Printed:
    """What our `render` printed."""
    objects = json.loads(_output([*command, "-o", "json"]))["items"]
    tasks = tf_config.replicas(objects)
    namespace, run = (
        objects[0]["metadata"].get("namespace", "default"),
        objects[0]["metadata"]["name"].removesuffix("-chief"),
    )
    return Printed(
        len(objects),
        len(_output(command)),
        tf_config.stored(objects),
        tf_config.tfjob(run, namespace, tasks),
        _peak(command),
    )


def _output(command: Sequence[str]) -> bytes:
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=True).stdout


def _peak(command: Sequence[str]) -> float:
    return int(_output([sys.executable, "-c", PEAK, *command])) / 1000


def _exceeded(command: Sequence[str], output: Path) -> str:
    """Runs it into `output`. The limit that it passed, "" where it kept to both."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))

    with output.open("wb") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.DEVNULL, timeout=MOST_SECONDS, preexec_fn=limited
            ).returncode
        except subprocess.TimeoutExpired:
            return f"more than {MOST_SECONDS:,} s"
    return f"more than {MOST_BYTES / 2**30:.0f} GiB" if code else ""


if __name__ == "__main__":
    main()
