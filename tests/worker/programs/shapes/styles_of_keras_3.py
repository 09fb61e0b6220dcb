"""The shapes once more, with Keras 3 in the place of tf.keras, and as a program."""

import importlib.util
from pathlib import Path

import keras
import styles

_spec = importlib.util.spec_from_file_location("shapes_of_keras_3", Path(__file__).with_name("shapes.py"))
assert _spec is not None
assert _spec.loader is not None
_shapes = importlib.util.module_from_spec(_spec)
_shapes.keras = keras  # type: ignore[attr-defined]
_spec.loader.exec_module(_shapes)
SHAPES = _shapes.SHAPES


class Fitted(styles.Fitted):
    shapes = SHAPES
