"""Trains by the runtime's loop with two replicas, and by Keras 3's Model.fit alone.

It prints a line of JSON with the difference of the weights after 20 steps, for each case. Keras trains first,
before the runtime has changed anything in it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import keras
import numpy as np
import tensorflow as tf

from worker.context import Hooks, Loop
from worker.parameters import TrainingParameters
from worker.program import LoadedProgram
from worker.reporting import Reporter
from worker.tf_compat import versions
from worker.training import loop as training_loop

STEPS, BATCH = 20, 12
schedules = keras.optimizers.schedules
OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "Lion": lambda: keras.optimizers.Lion(0.001),
    "Nadam": lambda: keras.optimizers.Nadam(0.01),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "clipnorm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.01),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.01),
    "schedule": lambda: keras.optimizers.SGD(schedules.ExponentialDecay(0.1, 5, 0.5)),
    "loss scaling": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.01),
        initial_scale=8.0,
        dynamic_growth_steps=7,
    ),
}


class Program:
    """A model with an embedding, constraints, regularisers and an `add_loss`."""

    floatx = "float64"

    def compiled_loss(self) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def model(self) -> Any:
        keras.config.set_floatx(self.floatx)
        keras.config.set_dtype_policy(self.floatx)
        layers, seeded = keras.layers, keras.initializers.GlorotUniform
        words = keras.Input((2,), dtype="int32")
        table = layers.Embedding(9, 4, embeddings_initializer=keras.initializers.RandomUniform(seed=1))
        flat = layers.Flatten()(table(words))
        hidden = layers.Dense(
            5,
            "tanh",
            kernel_initializer=seeded(seed=2),
            kernel_regularizer=keras.regularizers.L2(0.01),
            kernel_constraint=keras.constraints.MaxNorm(1.5),
        )(flat)
        if not versions.sums_activity_losses(keras.__version__):
            hidden = layers.ActivityRegularization(l2=0.01)(hidden)
        model = keras.Model(words, layers.Dense(3, kernel_initializer=seeded(seed=3))(hidden))
        model.compile(
            self.optimizer(), self.compiled_loss(), metrics=["accuracy"], weighted_metrics=["accuracy"]
        )
        return model

    def train_dataset(self, batch_size: int) -> Any:
        random = np.random.RandomState(5)
        words = random.randint(0, 9, (STEPS * BATCH, 2)).astype("int32")
        labels, weights = words.sum(axis=1) % 3, random.uniform(0, 2, STEPS * BATCH)
        return tf.data.Dataset.from_tensor_slices((words, labels, weights)).batch(batch_size)


class Overflowing(Program):
    """In the third step the second replica's scaled gradients are infinite, and both replicas
    skip the step.
    """

    floatx = "float32"

    def train_dataset(self, batch_size: int) -> Any:
        def spoilt(step: Any, batch: Any) -> Any:
            words, labels, weights = batch
            late = tf.logical_and(step == 2, tf.range(BATCH) >= BATCH // 2)
            return words, labels, tf.where(late, 1e30, tf.cast(weights, tf.float32))

        return super().train_dataset(batch_size).enumerate().map(spoilt)


class Reduced(Program):
    """The loss has another `reduction`, "scalar" for a function that takes the mean. The last batch has one
    example, so one of two replicas has none.
    """

    def __init__(self, reduction: str) -> None:
        super().__init__(OPTIMIZERS["momentum"])
        self.reduction = reduction

    def compiled_loss(self) -> Any:
        if self.reduction != "scalar":
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=self.reduction)
        of_each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        return lambda labels, predictions: tf.reduce_mean(of_each(labels, predictions))

    def train_dataset(self, batch_size: int) -> Any:
        dataset = super().train_dataset(batch_size).unbatch().take(STEPS * BATCH - BATCH + 1)
        if self.reduction == "scalar":  # Keras multiplies it by the weights, if there are any
            dataset = dataset.map(lambda words, label, _: (words, label))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(STEPS * BATCH - BATCH + 1))
        return dataset.batch(batch_size)


def weights(model: Any) -> list[Any]:
    return [np.array(variable.value) for variable in model.variables if "seed" not in variable.path]


def plain(program: Program) -> list[Any]:
    model = program.model()
    model.fit(program.train_dataset(BATCH), verbose=0)
    return weights(model)


def ours(program: Any, strategy: Any, parameters: dict[str, Any] | None = None, **more: Any) -> Any:
    """Returns the model, trained by the runtime."""
    loop = Loop(
        program=LoadedProgram(program, "numbers:Program", []),
        parameters=TrainingParameters.read({"globalBatchSize": BATCH, **(parameters or {})}),
        strategy=strategy,
        directory=None,
        writes=True,
        count_workers=lambda: 1,
        validates=False,
        hooks=Hooks(Reporter("numbers")),
        **more,
    )
    return training_loop.train(loop).model


def main() -> None:
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    programs = {name: Program(optimizer) for name, optimizer in OPTIMIZERS.items()}
    programs["overflow"] = Overflowing(
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1e10)
    )
    programs.update({name: Reduced(name) for name in ("sum", "mean_with_sample_weight", "scalar")})
    wanted = {name: plain(program) for name, program in programs.items()}
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    differences = {}
    for name, program in programs.items():
        given = weights(ours(program, strategy))
        assert len(given) == len(wanted[name])
        both = zip(wanted[name], given)  # noqa: B905 - Python 3.9 has no `strict`
        differences[name] = max(float(np.max(np.abs(one - other))) for one, other in both)
    print(json.dumps(differences))


if __name__ == "__main__":
    main()
