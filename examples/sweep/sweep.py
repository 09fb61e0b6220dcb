"""Searches width and learning rate by Optuna, a run for each trial: `python sweep.py --backend local`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import optuna

import launcher

HERE = Path(__file__).parent
METRIC = "accuracy"  # the evaluator's, after each epoch


def start(trial: Any, backend: Any) -> launcher.Run:
    """Submits the run of a trial."""
    rate = trial.suggest_float("learningRate", 1e-5, 1e-1, log=True)
    units = trial.suggest_int("units", 16, 128, log=True)
    chosen = {"learningRate": rate, "units": units}
    overrides = [f"spec.program.parameters.{name}={value!r}" for name, value in chosen.items()]
    return launcher.submit(
        HERE / "cluster.yaml",
        backend=backend,
        overrides=[f"metadata.name=sweep-{trial.number}", *overrides],
    )


def follow(study: Any, trial: Any, run: launcher.Run, seen: set[int]) -> bool:
    """Tells Optuna of the epochs that are new. Returns whether the trial is over."""
    ended = run.status().ended  # before its metrics are read, so that none is missed
    epochs = {each.epoch: each.metrics[METRIC] for each in run.metrics() if each.evaluation and each.epoch}
    for epoch in sorted(epochs.keys() - seen):
        trial.report(epochs[epoch], epoch)
        seen.add(epoch)
    if ended and run.status().phase == "Succeeded":
        study.tell(trial, epochs[max(epochs)])
    elif ended:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    elif trial.should_prune():
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        return False
    run.delete()
    return True


def main() -> None:
    """Searches, and prints what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["local", "kubernetes"], default="kubernetes")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
    )
    running: list[tuple[Any, launcher.Run, set[int]]] = []
    left: int = options.trials
    try:
        while left or running:
            while left and len(running) < options.at_once:
                trial = study.ask()
                running.append((trial, start(trial, options.backend), set()))
                left -= 1
            running = [each for each in running if not follow(study, *each)]
            time.sleep(1)
    finally:
        for _, run, _ in running:
            run.delete()
    for trial in study.trials:
        print(trial.number, trial.state.name, trial.params, trial.intermediate_values)
    print("best:", study.best_trial.number, study.best_value, study.best_params)


if __name__ == "__main__":
    main()
