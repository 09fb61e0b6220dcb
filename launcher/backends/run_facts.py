"""What the file of a run says, as its primary Job or JobSet bears it, and what both backends make of that."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.errors import ConflictError
from launcher.object_names import PROGRAM, SPEC_ANNOTATION
from launcher.status import annotations_of
from worker.contract.run_config import RunConfig


def submitted(item: dict[str, Any], *path: str) -> Any:
    """The value at this path of the run's file, or the whole file without a path. It is read from the
    annotation of the primary Job or JobSet, which leaves out fields that have their defaults. None if there
    is no such field or annotation.
    """
    try:
        value = json.loads(annotations_of(item)[SPEC_ANNOTATION])
        for name in path:
            value = value[name]
    except (LookupError, ValueError, TypeError):
        return None
    return value


def run_config(objects: Iterable[Mapping[str, Any]]) -> RunConfig | None:
    """What every task of the run reads, from its ConfigMap; None where there is none."""
    for item in objects:
        for text in (item.get("data") or {}).values() if item["kind"] == "ConfigMap" else ():
            with contextlib.suppress(ValueError):
                return RunConfig.from_json(text)
    return None


def with_config(objects: Iterable[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    """The objects, with changed fields of what every task of the run reads."""
    changed = []
    for item in objects:
        data = dict(item.get("data") or {}) if item["kind"] == "ConfigMap" else {}
        for name, text in data.items():
            with contextlib.suppress(ValueError):
                data[name] = dataclasses.replace(RunConfig.from_json(text), **changes).to_json()
        changed.append({**item, "data": data} if data else item)
    return changed


def no_model_directory(run: str, purpose: str = "copy from") -> ConflictError:
    """The error for a run that has no files for the `purpose`."""
    return ConflictError(
        f"run {run} has no model directory to {purpose}",
        "Submit it with a `modelDir` in its spec, such as /model.",
    )


def clean_policy(job: dict[str, Any]) -> str:
    """The cleanPolicy of the run's file: what is stopped or deleted once the run has ended."""
    return str(submitted(job, "spec", "runPolicy", "cleanPolicy") or "Running")


def starting_deadline(job: dict[str, Any]) -> float | None:
    """The startingDeadlineSeconds of the run's file, None where it has the default."""
    given = submitted(job, "spec", "runPolicy", "startingDeadlineSeconds")
    return None if given is None else float(given)


def trains_anew(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What becomes of the model of a run that has succeeded, whose name is submitted again. `before` and
    `now` are its primary Jobs, or JobSets; "" where it has no model, or nothing is trained now.
    """
    for item in (before, now):
        given = submitted(item, "spec") or {}
        is_program = bool({"entrypoint", "script"} & (given.get("program") or {}).keys())
        trains = given.get("mode", "Train") == "Train" and is_program
        if not (trains and given.get("modelDir")):
            return ""
    return (
        "it trains anew, from epoch 1: its export stays, and the new one gets the next number beside it; its "
        "checkpoints are replaced"
    )


def model_directory(primary: dict[str, Any]) -> str:
    """The modelDir of the run's file; "" where it has none."""
    return str(submitted(primary, "spec", "modelDir") or "")


def storage(primary: dict[str, Any]) -> Mapping[str, Any]:
    """How the run's file says that the model directory is reached."""
    given: Mapping[str, Any] = submitted(primary, "spec", "storage") or {}
    return given


def board_command(run: str, options: str) -> str:
    """The command that shows the run's TensorBoard."""
    return f"{PROGRAM} tensorboard {run}{options}"


def over(run: str, *, suspended: bool) -> ConflictError:
    """The error for a run that has ended, and is to be suspended or resumed."""
    word = "suspended" if suspended else "resumed"
    return ConflictError(f"run {run} has ended, so it cannot be {word}", "Submit it again.")
