"""Which Keras a script chooses for tf.keras. Standard library only: TensorFlow reads it at its import."""

from __future__ import annotations

import ast
import os
import re
import warnings
from pathlib import Path
from typing import Final

_VARIABLE: Final = "TF_USE_LEGACY_KERAS"
_SET: Final = re.compile(rf"os\.environ\['{_VARIABLE}'\] = '(\w*)'")
_SET_DEFAULT: Final = re.compile(rf"os\.environ\.setdefault\('{_VARIABLE}', '(\w*)'\)")


def chosen(script: Path) -> str | None:
    """Returns the variable's value in `python SCRIPT` when TensorFlow reads it: what statements of the script
    outside of functions and conditions set, or else the environment's. The runtime has imported TensorFlow
    before they run.
    """
    value = os.environ.get(_VARIABLE)
    for statement in _statements(script):
        text = ast.unparse(statement)
        match = _SET.fullmatch(text)
        if match is None and value is None:
            match = _SET_DEFAULT.fullmatch(text)
        if match is not None:
            value = match[1]
    return value


def _statements(script: Path) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            statements = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # told where the script is run
    return [each for each in statements if isinstance(each, (ast.Assign, ast.Expr))]
