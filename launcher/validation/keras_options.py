"""Finds options of Keras 3's optimizers in a program's source that fail where workers share variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from launcher.validation import python_syntax

_OPTIONS: Final = ("gradient_accumulation_steps", "ema_overwrite_frequency")
"""Options that the runtime refuses after it has made the model: worker/tf_compat/keras_3.py."""


def unsupported(files: Mapping[str, bytes], by_tf_keras: bool) -> Iterator[str]:
    """Yields a sentence for each use in a .py file that makes models with Keras 3: by `keras`, or by
    `tf.keras` where `by_tf_keras` says that it is Keras 3. Runs no code. A file that imports tf_keras too may
    make its model with either, so the runtime looks at the optimizer itself.
    """
    for name, tree in python_syntax.trees(files):
        imported = _imported(tree)
        if "tf_keras" in imported or not (by_tf_keras or "keras" in imported):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in _OPTIONS and not _is_none(node.value):
                yield (
                    f"{name}:{node.lineno}: {node.arg}: Keras 3 cannot do that under ParameterServer: "
                    "leave it out"
                )


def _imported(tree: ast.Module) -> set[str]:
    """Returns the names of the imported modules, up to their first dot."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
