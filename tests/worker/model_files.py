"""Reads a run's model directory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.worker.forked_tasks import printed

_ITERATIONS = (
    "import sys, tensorflow as tf;"
    "reader = tf.train.load_checkpoint(sys.argv[1]);"
    # The end of the name depends on the version of Keras.
    "names = sorted(reader.get_variable_to_shape_map());"
    "print(*(reader.get_tensor(name) for name in names if name.startswith('optimizer/_iterations/')))"
)


def epochs(model: Path) -> list[int]:
    """Returns the epochs of its checkpoints, ascending."""
    files = (model / "checkpoints").glob("ckpt-*.index")
    matches = (re.fullmatch(r"ckpt-(\d+)\.index", path.name) for path in files)
    return sorted(int(match.group(1)) for match in matches if match)


def iterations(model: Path, epoch: int) -> int:
    """Returns the optimizer's iterations in a checkpoint. It runs in its own process, since tests do not
    import TensorFlow.
    """
    return int(printed(_ITERATIONS, _checkpoint(model, epoch)).split()[-1])


def extremes(model: Path, epoch: int, variable: str) -> tuple[float, float]:
    """Returns the least and the greatest value in a checkpoint of the variable whose name ends so there."""
    code = (
        "import sys, tensorflow as tf; reader = tf.train.load_checkpoint(sys.argv[1]);"
        "names = reader.get_variable_to_shape_map(); end = sys.argv[2] + '/.ATTRIBUTES/VARIABLE_VALUE';"
        "value = reader.get_tensor(min(name for name in names if name.endswith(end)));"
        "print(value.min(), value.max())"
    )
    least, greatest = map(float, printed(code, _checkpoint(model, epoch), variable).split()[-2:])
    return least, greatest


def variables(model: Path, epoch: int) -> dict[str, list[float]]:
    """Returns the values of the model's and the optimizer's variables in a checkpoint, by name."""
    code = (
        "import json, sys, tensorflow as tf; reader = tf.train.load_checkpoint(sys.argv[1]);"
        "kinds = reader.get_variable_to_dtype_map();"
        "names = [name for name, kind in kinds.items() if kind == tf.float32];"
        "print(json.dumps({name: reader.get_tensor(name).ravel().tolist() for name in names}))"
    )
    text = printed(code, _checkpoint(model, epoch))
    values: dict[str, list[float]] = json.loads(text.splitlines()[-1])
    return values


def _checkpoint(model: Path, epoch: int) -> str:
    return str(model / "checkpoints" / f"ckpt-{epoch}")


def state(model: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((model / "run-state.json").read_text())
    return document
