"""How the evaluator of a successful run ended. Pure functions."""

from __future__ import annotations

from launcher.status import Phase, RunStatus, latest
from worker.contract.records import Evaluation, Failed, Ready

EVALUATOR = "evaluator"


def trouble(status: RunStatus) -> str:
    """Returns a sentence where the run has succeeded and its evaluator has failed, also for lack of a
    checkpoint to score; else "".

    An evaluator that runs a script and was stopped with the run has not failed, because a script has no other
    end.
    """
    role = next((role for role in status.roles[1:] if role.role == EVALUATOR), None)
    if role is None or status.phase is not Phase.SUCCEEDED or role.phase is not Phase.FAILED:
        return ""
    records = {
        task.name: status.records.get(task.name, {}) for task in status.tasks if task.role == EVALUATOR
    }
    failed = status.last_failure(EVALUATOR) is not None
    begun = any(task.role == EVALUATOR and task.running is not None for task in status.tasks)
    if not failed and begun and latest(records, Ready) is None:
        return ""
    how = "failed" if failed else "was stopped" if begun else "never started"
    scored = latest(records, Evaluation)
    if scored is None:
        what = "and scored no checkpoint"
    elif scored.epoch is None:
        what = "after some evaluations"
    else:
        what = f"after the evaluation of epoch {scored.epoch}"
    failure = latest(records, Failed)
    why = failure.message if failure is not None and failed else role.message
    return f"the model is trained and kept, but the evaluator {how} {what}" + (f": {why}" if why else "")
