"""The evaluator of cells that have trained: `python -m tests.worker.matrix.scoring CELLS OUTPUT`.

Both are as in `running`. A line of `outcomes.jsonl` for each says what it scored.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.worker.matrix.cells import CELL_SECONDS, FOLDER, PROGRAMS, START_SECONDS, Cell
from tests.worker.matrix.running import Records, begin_with_float32, parameters_of
from worker import program, runtime
from worker import task as tasks
from worker.contract.records import Event


def main() -> None:
    cells = [Cell(*cell) for cell in json.loads(Path(sys.argv[1]).read_text())]
    folder = Path(sys.argv[2])
    faulthandler.enable()
    task = tasks.from_environment()
    runtime.prepare_environment(task.config.keras)
    from worker.imports import import_tensorflow

    faulthandler.dump_traceback_later(START_SECONDS, exit=True)
    import_tensorflow(keras=True)
    from worker.evaluation.sidecar import Evaluator

    for cell in cells:
        faulthandler.dump_traceback_later(CELL_SECONDS, exit=True)
        begin_with_float32()
        parameters, _ = parameters_of(cell, folder)
        config = dataclasses.replace(
            task.config,
            run_id="1",
            entrypoint=PROGRAMS[cell.style],
            parameters=parameters,
            model_dir=str(folder / "-".join(cell)),
            chief_address=None,
        )
        cell_task = dataclasses.replace(task, config=config, source=FOLDER)
        records = Records()
        outcome: dict[str, Any] = {}
        try:
            loaded = program.load(config.entrypoint, FOLDER, parameters)
            Evaluator(cell_task, loaded, records, lambda doing: None).run()
        except Exception as error:  # noqa: BLE001 - the cell fails with it, and the next is tried
            outcome = {
                "error": f"{type(error).__name__}: {error}",
                "traceback": "".join(traceback.format_exception(error))[-6000:],
            }
        outcome["evaluations"] = [
            [record["epoch"], record["metrics"]] for record in records.of(Event.EVALUATION)
        ]
        with (folder / "outcomes.jsonl").open("a") as file:
            file.write(json.dumps({"cell": list(cell), "what": "scored", **outcome}) + "\n")
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
