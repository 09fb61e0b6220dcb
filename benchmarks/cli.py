"""How long the command line takes: start-up against bare Python, and `render` as the cluster grows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import recording
from benchmarks.measuring import ROOT, interleaved, table

DEMO = "examples/fashion-mnist/cluster.yaml"
FEW, MANY = 10, 10_000


def render(*arguments: str) -> list[str]:
    """The command that renders the demo."""
    return [sys.executable, "-m", "launcher", "render", DEMO, *arguments]


def main() -> None:
    """Measures and prints."""
    options = recording.parser("benchmarks.cli", str(__doc__), 15).parse_args()
    sizes = {
        workers: [f"--set=spec.worker.replicas={workers}", "--set=spec.ps.replicas=4"]
        for workers in (FEW, MANY)
    }
    medians = interleaved(
        {
            "python -c pass": [sys.executable, "-c", "pass"],
            "--help": [sys.executable, "-m", "launcher", "--help"],
            "render, the demo": render(),
            **{f"render, {workers:,} workers": render(*flags) for workers, flags in sizes.items()},
        },
        options.rounds,
    )
    bare, few = medians["python -c pass"], medians[f"render, {FEW:,} workers"]

    def row(name: str, base: float, against: str, limit: str) -> Sequence[str]:
        return name, f"{medians[name]:.0f}", f"{medians[name] / base:.2f}", against, limit

    rows = [
        row("--help", bare, "python -c pass", "6"),
        row("render, the demo", bare, "python -c pass", "25"),
        row(f"render, {MANY:,} workers", few, f"{FEW} workers", "1.5"),
    ]
    text = (
        f"Medians of {options.rounds} rounds; python -c pass: {bare:.1f} ms,"
        f" render of {FEW} workers: {few:.0f} ms.\n\n"
        f"{table(('command', 'ms', 'ratio', 'to', 'should be under'), rows)}\n\n"
    )
    heads = ("workers", "bytes", "without the chief's list of them", "objects")
    text += table(heads, [_size(workers, flags) for workers, flags in sizes.items()])
    recording.publish("cli", text, record=options.record)


def _size(workers: int, flags: Sequence[str]) -> Sequence[str]:
    printed = subprocess.run(
        render("-o", "json", *flags), cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    objects = json.loads(printed)["items"]
    name = objects[0]["metadata"]["name"].removesuffix("-chief")
    # In TF_CONFIG, or in the ConfigMap's file, where every quote is escaped once more.
    listed = sum(
        len(json.dumps(json.dumps(f"{name}-worker-{index}.{name}.default.svc:2222"))) - 1
        for index in range(workers)
    )
    return f"{workers:,}", f"{len(printed):,}", f"{len(printed) - listed:,}", f"{len(objects)}"


if __name__ == "__main__":
    main()
