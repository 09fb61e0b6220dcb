"""What a program must have for the mode of a run."""

from __future__ import annotations

from worker.contract.run_config import RunConfig
from worker.evaluation import sidecar, standalone
from worker.prediction import predict
from worker.program import LoadedProgram


def check_mode(program: LoadedProgram, config: RunConfig) -> None:
    """Raises Failure where the program lacks a method that the run of `config` needs."""
    if config.mode == "Evaluate":
        standalone.check_program(program)
    elif config.mode == "Predict":
        predict.check_program(program)
    elif config.scores_program:
        sidecar.check_program(program)
