"""SavedModels that are written a part at a time have the values of the checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from worker.checkpoints import exports_in_parts
from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.steps.model_build import build
from worker.tf_compat import keras_models
from worker.tf_compat.saved_models import variables_without_values

ROWS = 1000
BATCH = np.array([[1, 2, ROWS - 1]], "int32")


def compiled(model: Any) -> Any:
    model.compile("adam", "mse")
    return model


def functional(kind: ModuleType, size: int = ROWS) -> Any:
    numbers = kind.Input((3,), dtype="int32")
    rows = kind.layers.Embedding(size, 5)(numbers)
    return kind.Model(numbers, kind.layers.Dense(2)(kind.layers.Flatten()(rows)))


def subclassed(kind: ModuleType) -> Any:
    class Tower(kind.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = kind.layers.Embedding(ROWS, 5)
            self.out = kind.layers.Dense(2)

        def call(self, numbers: Any) -> Any:
            return self.out(self.table(numbers))

    return Tower()


@pytest.mark.parametrize("kind", [keras, tf_keras], ids=["Keras 3", "Keras 2"])
@pytest.mark.parametrize("make", [functional, subclassed])
def test_a_large_variable_is_copied_from_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: ModuleType, make: Any
) -> None:
    monkeypatch.setattr(exports_in_parts, "row_ranges", lambda variable: [(0, 150), (150, ROWS - 150)])
    trained = compiled(make(kind))
    expected = trained(BATCH).numpy()
    trained.optimizer.build(trained.trainable_variables)
    directory = ModelDirectory(str(tmp_path))
    directory.save(StateCopy.unread(trained, Position(1)))

    with variables_without_values(at_least=3000) as large:
        model = compiled(make(kind))
        build(model, tf.TensorSpec((None, 3), tf.int32), "it", computes=False)
    (table,) = large
    assert not table.is_initialized()
    with directory.loaded_for_export(model, 1, large):
        keras_models.export(model, str(tmp_path / "export"))
    assert not table.is_initialized(), "it was never in memory"

    written = tf.saved_model.load(str(tmp_path / "export"))
    serving = written.signatures["serving_default"]
    ((name, spec),) = serving.structured_input_signature[1].items()
    (output,) = serving(**{name: tf.cast(BATCH, spec.dtype)}).values()
    np.testing.assert_array_equal(output.numpy(), expected)
    assert sorted(path.name for path in (tmp_path / "export" / "variables").iterdir()) == [
        "variables.data-00000-of-00001",
        "variables.index",
    ]


def test_a_checkpoint_of_another_shape_is_told(tmp_path: Path) -> None:
    directory = ModelDirectory(str(tmp_path))
    directory.save(StateCopy.unread(compiled(functional(keras)), Position(1)))
    with variables_without_values(at_least=3000) as large:
        model = compiled(functional(keras, ROWS + 1))
    loaded = directory.loaded_for_export(model, 1, large)
    with pytest.raises(ValueError, match=r"ckpt-1 has no values of .*\(1001, 5\)"), loaded:
        pass
