"""Reads a run's model directory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    found = (re.fullmatch(r"ckpt-(\d+)\.index", path.name) for path in files)
    return sorted(int(match.group(1)) for match in found if match)


def iterations(model: Path, epoch: int) -> int:
    """Returns the optimizer's iterations in a checkpoint. It runs in its own process, since tests do not
    import TensorFlow.
    """
    command = [sys.executable, "-c", _ITERATIONS, str(model / "checkpoints" / f"ckpt-{epoch}")]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def state(model: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((model / "run-state.json").read_text())
    return document
