"""How long the command line takes: start-up against bare Python, and `render` as the cluster grows.

python -m benchmarks.cli [ROUNDS]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.measuring import ROOT, interleaved, table

DEMO = "examples/fashion-mnist/cluster.yaml"
FEW, MANY = 10, 10_000


def render(*arguments: str) -> list[str]:
    """The command that renders the demo."""
    return [sys.executable, "-m", "launcher", "render", DEMO, *arguments]


def main(rounds: int = 15) -> None:
    """Measures and prints."""
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
        rounds,
    )
    bare, few = medians["python -c pass"], medians[f"render, {FEW:,} workers"]

    def row(name: str, base: float, against: str, limit: str) -> Sequence[str]:
        return name, f"{medians[name]:.0f}", f"{medians[name] / base:.2f}", against, limit

    rows = [
        row("--help", bare, "python -c pass", "6"),
        row("render, the demo", bare, "python -c pass", "25"),
        row(f"render, {MANY:,} workers", few, f"{FEW} workers", "1.5"),
    ]
    print(
        f"Medians of {rounds} rounds; python -c pass: {bare:.1f} ms, render of {FEW} workers: {few:.0f} ms.\n"
    )
    print(table(("command", "ms", "ratio", "to", "should be under"), rows))
    print()
    print(
        table(
            ("workers", "bytes", "without the chief's list of them", "objects"),
            [_size(n, f) for n, f in sizes.items()],
        )
    )


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
    main(*(int(argument) for argument in sys.argv[1:]))
