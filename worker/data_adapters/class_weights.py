"""The `class_weight` of fit, as each Keras takes it. Source: data_adapter_utils.py of Keras 3,
data_adapter.py of tf_keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from worker.failures import program_error


class ClassWeights:
    """Gives the examples of a batch the weights of their classes, times those that they have."""

    def __init__(self, class_weight: Any, floatx: str, call: str, *, keras_3: bool) -> None:
        if not keras_3 and sorted(class_weight) != list(range(len(class_weight))):
            raise program_error(
                f"{call}: class_weight must have the keys 0 to one less than the number of classes, and has "
                f"{sorted(class_weight)}"
            )
        self._call = call
        self._keras_3 = keras_3
        self._by_class = dict(class_weight)
        # Keras 3 gives 1 to a class without a weight.
        count = max(class_weight) + 1
        self.table = tf.convert_to_tensor([class_weight.get(number, 1.0) for number in range(count)])
        self.dtype = floatx if keras_3 else self.table.dtype

    def check(self, y: Any, weights: Any) -> None:
        """Raises Failure for targets or sample weights with which Keras takes no class_weight."""
        if y is None:
            raise program_error(f"{self._call}: class_weight needs targets")
        if tf.nest.is_nested(y):
            raise program_error(
                f"{self._call}: class_weight is for models with one output, and there are targets of several"
            )
        if self._keras_3 and weights is not None:
            raise program_error(
                f"{self._call}: Keras 3 takes class_weight or sample_weight, not both: multiply them yourself"
            )

    def of(self, targets: Any, sample_weights: Any = None) -> Any:
        """Returns the weights, of arrays."""
        classes = np.asarray(targets)
        if classes.ndim > 1:
            classes = classes.argmax(-1) if classes.shape[-1] != 1 else classes.squeeze(-1)
        classes = np.round(classes).astype(np.int64)
        kind = tf.as_dtype(self.dtype).as_numpy_dtype
        if self._keras_3:
            weights = np.array([self._by_class.get(int(each), 1.0) for each in classes], kind)
        else:
            weights = self.table.numpy()[classes]
        if sample_weights is None:
            return weights
        sample_weights = np.asarray(sample_weights)
        return sample_weights * weights.astype(sample_weights.dtype).reshape(
            weights.shape + (1,) * (sample_weights.ndim - weights.ndim)
        )

    def of_batch(self, *batch: Any) -> Any:
        """Returns a batch of tensors with its weights, for `tf.data.Dataset.map`."""
        x, y, sample_weights = (*batch, None, None)[:3]
        self.check(y, sample_weights)
        one_hot = y.shape.rank is not None and y.shape.rank > 1
        classes = y
        if one_hot:
            classes = tf.cond(
                tf.shape(y)[-1] > 1,
                lambda: tf.argmax(y, -1),
                lambda: tf.cast(tf.round(tf.reshape(y, tf.shape(y)[:-1])), tf.int64),
            )
        weights = tf.gather(self.table, tf.cast(tf.round(classes), tf.int64))
        if sample_weights is not None:
            weights = tf.cast(weights, sample_weights.dtype)
            weights = sample_weights * tf.reshape(
                weights, tf.concat([tf.shape(weights), [1] * (sample_weights.shape.rank - 1)], 0)
            )
        return x, y, weights
