"""`python -m tests.worker.matrix`: runs cells and prints a line for each, for whoever mends one.

python -m tests.worker.matrix --strategies Mirrored-2 --styles fit --shapes subclassed,lookup
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.worker.matrix import driving
from tests.worker.matrix.cells import SHAPES, STRATEGIES, STYLES, cells
from tests.worker.matrix.judging import judge


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.worker.matrix", description=__doc__)
    choices = {"strategies": list(STRATEGIES), "styles": list(STYLES), "shapes": list(SHAPES)}
    for name, known in choices.items():
        parser.add_argument(f"--{name}", default=",".join(known), help="%(default)s")
    parser.add_argument("--folder", type=Path, help="for models and outcomes; the default is a new one")
    parser.add_argument("--jobs", type=int, default=1, help="strategies at a time")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="matrix-"))
    styles, shapes = arguments.styles.split(","), arguments.shapes.split(",")

    strategies = arguments.strategies.split(",")
    every = [
        cell
        for strategy in strategies
        for cell in cells(strategy)
        if cell.style in styles and cell.shape in shapes
    ]

    def column(strategy: str) -> int:
        chosen = [cell for cell in every if cell.strategy == strategy]
        outcomes = driving.run(strategy, chosen, folder / strategy)
        references = driving.references(folder / "plain", every)
        failed = 0
        with (folder / "verdicts.jsonl").open("a") as file:
            for cell in chosen:
                verdict = judge(cell, outcomes[cell], references, folder / strategy, folder / "plain")
                failed += verdict.kind == "failed"
                shown = " ".join(f"{name} {far:.1g}" for name, far in verdict.differences.items())
                print(f"{cell}: {verdict.kind} {shown} {verdict.why[:300]}", flush=True)
                line = {"cell": cell, "kind": verdict.kind, "why": verdict.why, "found": outcomes[cell]}
                file.write(json.dumps(line) + "\n")
        return failed

    print(f"in {folder}", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        return 1 if sum(pool.map(column, strategies)) else 0


if __name__ == "__main__":
    sys.exit(main())
