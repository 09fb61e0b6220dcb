"""Models and data of every shape that users have. Each class is one shape, and its docstring says what
differs.

All are small, draw nothing at random after their first weights, and have their examples in the same order, so
that two trainings of a shape can be compared number by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

keras: Any = globals().get("keras", tf.keras)  # see styles_of_keras_3.py
layers = keras.layers


class Seen(keras.metrics.Metric):
    """The number of examples that a metric was given."""

    def __init__(self, name: str = "seen", **options: Any) -> None:
        super().__init__(name=name, **options)
        self.examples = self.add_weight(name="examples", initializer="zeros")

    def update_state(self, labels: Any, predictions: Any, sample_weight: Any = None) -> None:
        self.examples.assign_add(tf.cast(tf.shape(predictions)[0], tf.float32))

    def result(self) -> Any:
        return tf.identity(self.examples)


def dense(units: int, seed: int, activation: str | None = None, **options: Any) -> Any:
    initializer = keras.initializers.GlorotUniform(seed=seed)
    return layers.Dense(units, activation, kernel_initializer=initializer, **options)


def numbers(rows: int, columns: int, seed: int) -> Any:
    return np.random.RandomState(seed).uniform(-1, 1, (rows, columns)).astype("float32")


def surface(features: Any) -> Any:
    """Labels, `float32[rows, 1]`."""
    slopes = np.linspace(-1, 1, features.shape[1], dtype="float32")[:, None]
    return (np.sin(2 * features @ slopes) + 0.5).astype("float32")


def of_classes(labels: Any, predictions: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)


class Sequential:
    """A dataset that ends, of whole batches."""

    examples, held_out = 24, 12
    batch_size, epochs = 8, 2
    steps: int | None = None
    """stepsPerEpoch"""
    options: Mapping[str, Any] = {}
    """spec.strategyOptions"""

    def __init__(self, data: str, pace: float = 1.0) -> None:
        """`pace` is a factor of the learning rate."""
        self.data = Path(data)
        self.pace = pace

    def model(self) -> Any:
        model = self.network()
        model.compile(self.optimizer(), self.compiled_loss(), metrics=self.metrics())
        return model

    def train_dataset(self, batch_size: int) -> Any:
        return self.plain_dataset(batch_size)

    def plain_dataset(self, batch_size: int) -> Any:
        """What the reference trains on."""
        return tf.data.Dataset.from_tensor_slices(self.rows(self.examples, 0)).batch(batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        return tf.data.Dataset.from_tensor_slices(self.rows(self.held_out, 1)).batch(batch_size)

    def rows(self, count: int, seed: int) -> Any:
        features = numbers(count, 4, seed)
        return features, surface(features)

    def network(self) -> Any:
        return keras.Sequential([layers.Input((4,)), dense(6, 1, "tanh"), dense(1, 2)])

    def optimizer(self) -> Any:
        return keras.optimizers.SGD(0.1 * self.pace, momentum=0.5)

    def compiled_loss(self) -> Any:
        return "mse"

    def metrics(self) -> Any:
        return ["mae", Seen()]

    def loss(self, labels: Any, predictions: Any) -> Any:
        return tf.reduce_mean(tf.square(labels - predictions), axis=-1)

    def fit_options(self) -> dict[str, Any]:
        """Of the reference's Model.fit."""
        return {}


class Functional(Sequential):
    def network(self) -> Any:
        given = layers.Input((4,))
        hidden = dense(6, 1, "tanh")(given)
        return keras.Model(given, dense(1, 2)(layers.Concatenate()([given, hidden])))


class Subclassed(Sequential):
    class Network(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.last = dense(6, 1, "tanh"), dense(1, 2)

        def call(self, inputs: Any) -> Any:
            return self.last(self.hidden(inputs))

    def network(self) -> Any:
        return self.Network()


class SubclassedTraining(Subclassed):
    """Its call behaves otherwise in training, and has a model within."""

    class Network(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.body = keras.Sequential([dense(6, 1, "tanh"), dense(6, 3, "tanh")])
            self.last = dense(1, 2)

        def call(self, inputs: Any, training: bool = False) -> Any:
            hidden = self.body(inputs, training=training)
            return self.last(2.0 * hidden if training else hidden)


class InputsOutputs(Sequential):
    def rows(self, count: int, seed: int) -> Any:
        left, right = numbers(count, 4, seed), numbers(count, 2, seed + 10)
        return (left, right), (surface(left), surface(right))

    def network(self) -> Any:
        left, right = layers.Input((4,)), layers.Input((2,))
        hidden = layers.Concatenate()([dense(5, 1, "tanh")(left), dense(3, 2, "tanh")(right)])
        first, second = dense(1, 3, name="first")(hidden), dense(1, 4, name="second")(hidden)
        return keras.Model([left, right], [first, second])

    def metrics(self) -> Any:
        return [["mae", Seen()], ["mae"]]

    def loss(self, labels: Any, predictions: Any) -> Any:
        pairs = zip(labels, predictions, strict=True)
        return tf.add_n([super(InputsOutputs, self).loss(*pair) for pair in pairs])


class DictInputs(Sequential):
    def rows(self, count: int, seed: int) -> Any:
        left, right = numbers(count, 4, seed), numbers(count, 2, seed + 10)
        return {"left": left, "right": right}, surface(left)

    def network(self) -> Any:
        given = {"left": layers.Input((4,), name="left"), "right": layers.Input((2,), name="right")}
        hidden = layers.Concatenate()([given["left"], given["right"]])
        return keras.Model(given, dense(1, 2)(dense(6, 1, "tanh")(hidden)))


class SubclassedDict(DictInputs):
    class Network(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.last = dense(6, 1, "tanh"), dense(1, 2)

        def call(self, inputs: Any) -> Any:
            return self.last(self.hidden(tf.concat([inputs["left"], inputs["right"]], axis=1)))

    def network(self) -> Any:
        return self.Network()


class Lookup(Sequential):
    """As in TensorFlow's tutorial for parameter servers: the words are looked up in the dataset."""

    words = ("river", "stone", "cloud", "grass")

    def network(self) -> Any:
        self.table = layers.StringLookup(vocabulary=list(self.words), num_oov_indices=0, mask_token=None)
        return keras.Sequential([layers.Input((4,)), dense(6, 1, "tanh"), dense(1, 2)])

    def plain_dataset(self, batch_size: int) -> Any:
        return self.looked_up(self.examples, 0, batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        return self.looked_up(self.held_out, 1, batch_size)

    def looked_up(self, count: int, seed: int, batch_size: int) -> Any:
        picked = np.random.RandomState(seed).randint(0, len(self.words), count)
        words = np.array(self.words)[picked]
        labels = (picked[:, None] / 4.0).astype("float32")
        rows = tf.data.Dataset.from_tensor_slices((words, labels)).batch(batch_size)
        return rows.map(lambda words, labels: (tf.one_hot(self.table(words), 4), labels))


class Preprocessing(Sequential):
    """A layer with weights, which `adapt` found."""

    def network(self) -> Any:
        self.scaling = layers.Normalization()
        self.scaling.adapt(self.rows(self.examples, 0)[0])
        return super().network()

    def plain_dataset(self, batch_size: int) -> Any:
        return super().plain_dataset(batch_size).map(lambda rows, labels: (self.scaling(rows), labels))

    def evaluation_dataset(self, batch_size: int) -> Any:
        return super().evaluation_dataset(batch_size).map(lambda rows, labels: (self.scaling(rows), labels))


class LookupInside(Sequential):
    """The model takes strings."""

    words = Lookup.words

    def network(self) -> Any:
        given = layers.Input((1,), dtype=tf.string)
        table = layers.StringLookup(vocabulary=list(self.words), output_mode="one_hot")
        return keras.Model(given, dense(1, 2)(dense(6, 1, "tanh")(table(given))))

    def rows(self, count: int, seed: int) -> Any:
        picked = np.random.RandomState(seed).randint(0, len(self.words), (count, 1))
        return np.array(self.words)[picked], (picked / 4.0).astype("float32")


class AddLoss(Sequential):
    class Sparing(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(0.05 * tf.reduce_mean(tf.square(inputs)))
            return inputs

    def network(self) -> Any:
        return keras.Sequential([layers.Input((4,)), dense(6, 1, "tanh"), self.Sparing(), dense(1, 2)])


class Regularizers(Sequential):
    def network(self) -> Any:
        penalty = keras.regularizers.L2(0.02)
        hidden = dense(6, 1, "tanh", kernel_regularizer=penalty, bias_regularizer=penalty)
        return keras.Sequential([layers.Input((4,)), hidden, dense(1, 2, kernel_regularizer=penalty)])


class Recurrent(Sequential):
    def rows(self, count: int, seed: int) -> Any:
        features = numbers(count, 6, seed)
        return features.reshape(count, 3, 2), surface(features)

    def network(self) -> Any:
        recurrent = layers.GRU(
            4,
            kernel_initializer=keras.initializers.GlorotUniform(seed=1),
            recurrent_initializer=keras.initializers.Orthogonal(seed=2),
        )
        return keras.Sequential([layers.Input((3, 2)), recurrent, dense(1, 3)])


class Masked(Recurrent):
    """Sequences of several lengths, whose rest is masked; padded by the dataset."""

    def rows(self, count: int, seed: int) -> Any:
        words = np.random.RandomState(seed).randint(1, 9, (count, 4))
        for row, length in enumerate(np.random.RandomState(seed + 1).randint(1, 5, count)):
            words[row, length:] = 0
        return words, (words.sum(axis=1, keepdims=True) / 20.0).astype("float32")

    def network(self) -> Any:
        table = layers.Embedding(
            9, 3, mask_zero=True, embeddings_initializer=keras.initializers.RandomUniform(seed=4)
        )
        recurrent = layers.SimpleRNN(
            3,
            kernel_initializer=keras.initializers.GlorotUniform(seed=1),
            recurrent_initializer=keras.initializers.Orthogonal(seed=2),
        )
        return keras.Sequential([layers.Input((4,), dtype="int64"), table, recurrent, dense(1, 3)])


class EmbeddingSparse(Sequential):
    """Gradients are tf.IndexedSlices, with words that come twice in a batch."""

    def rows(self, count: int, seed: int) -> Any:
        words = np.random.RandomState(seed).randint(0, 10, (count, 2))
        return words, (words.sum(axis=1, keepdims=True) / 20.0).astype("float32")

    def network(self) -> Any:
        initializer = keras.initializers.RandomUniform(seed=1)
        table = layers.Embedding(10, 3, embeddings_initializer=initializer)
        return keras.Sequential([layers.Input((2,), dtype="int64"), table, layers.Flatten(), dense(1, 2)])

    def optimizer(self) -> Any:
        return keras.optimizers.SGD(0.2 * self.pace)


class EmbeddingAdam(EmbeddingSparse):
    """An optimizer with slots of the embedding's own size."""

    def optimizer(self) -> Any:
        return keras.optimizers.Adam(0.02 * self.pace, epsilon=0.1)


class EmbeddingDense(EmbeddingSparse):
    """The whole table is used, so its gradient is dense."""

    class Table(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.rows = self.add_weight(
                name="rows", shape=(10, 3), initializer=keras.initializers.RandomUniform(seed=1)
            )

        def call(self, words: Any) -> Any:
            return tf.one_hot(words, 10) @ self.rows

    def network(self) -> Any:
        flat = layers.Flatten()
        return keras.Sequential([layers.Input((2,), dtype="int64"), self.Table(), flat, dense(1, 2)])


class BatchNormalization(Sequential):
    synchronized = False

    def network(self) -> Any:
        normalization = layers.BatchNormalization(momentum=0.5, synchronized=self.synchronized)
        return keras.Sequential([layers.Input((4,)), dense(6, 1), normalization, dense(1, 2)])


class BatchNormalizationSynchronized(BatchNormalization):
    synchronized = True


class MixedPrecision(Sequential):
    def network(self) -> Any:
        keras.mixed_precision.set_global_policy("mixed_float16")
        last = layers.Activation("linear", dtype="float32")
        return keras.Sequential([layers.Input((4,)), dense(6, 1, "tanh"), dense(1, 2), last])


class LabelsND(Sequential):
    """Labels `[batch, 3, 2]`; the program's loss gives one number for each example."""

    def rows(self, count: int, seed: int) -> Any:
        features = numbers(count, 4, seed)
        labels = np.stack([surface(features)[:, 0] * factor / 6 for factor in range(1, 7)], axis=1)
        return features, labels.reshape(count, 3, 2)

    def network(self) -> Any:
        return keras.Sequential(
            [layers.Input((4,)), dense(6, 1, "tanh"), dense(6, 2), layers.Reshape((3, 2))]
        )

    def loss(self, labels: Any, predictions: Any) -> Any:
        return tf.reduce_mean(tf.square(labels - predictions), axis=[1, 2])


class LabelsNDUnreduced(LabelsND):
    """A Keras loss with reduction="none" gives `[batch, 3]`."""

    def loss(self, labels: Any, predictions: Any) -> Any:
        return keras.losses.MeanSquaredError(reduction="none")(labels, predictions)


class Classes(Sequential):
    """Integer labels, `int64[batch]`."""

    def rows(self, count: int, seed: int) -> Any:
        features = numbers(count, 4, seed)
        return features, np.argmax(features[:, :3], axis=1)

    def network(self) -> Any:
        return keras.Sequential([layers.Input((4,)), dense(6, 1, "tanh"), dense(3, 2)])

    def compiled_loss(self) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self) -> Any:
        return ["accuracy", Seen()]

    def loss(self, labels: Any, predictions: Any) -> Any:
        return of_classes(labels, predictions)


class SampleWeights(Sequential):
    def rows(self, count: int, seed: int) -> Any:
        weights = np.linspace(0, 2, count, dtype="float32")
        return *super().rows(count, seed), weights

    def model(self) -> Any:
        model = self.network()
        model.compile(self.optimizer(), "mse", metrics=[Seen()], weighted_metrics=["mae"])
        return model


class ClassWeights(Classes):
    """The dataset looks each example's weight up; the reference says `class_weight` to Model.fit."""

    weights = (0.5, 1.0, 2.0)

    def train_dataset(self, batch_size: int) -> Any:
        weights = tf.constant(self.weights)
        return (
            super()
            .plain_dataset(batch_size)
            .map(lambda rows, labels: (rows, labels, tf.gather(weights, labels)))
        )

    def fit_options(self) -> dict[str, Any]:
        return {"class_weight": dict(enumerate(self.weights))}


class Infinite(Sequential):
    steps = 3

    def plain_dataset(self, batch_size: int) -> Any:
        return super().plain_dataset(batch_size).repeat()


class Convolution(Sequential):
    """Fails with an empty batch, as the gradient of a convolution does."""

    def rows(self, count: int, seed: int) -> Any:
        features = numbers(count, 16, seed)
        return features.reshape(count, 4, 4, 1), surface(features)

    def network(self) -> Any:
        initializer = keras.initializers.GlorotUniform(seed=1)
        convolution = layers.Conv2D(2, 3, activation="tanh", kernel_initializer=initializer)
        return keras.Sequential([layers.Input((4, 4, 1)), convolution, layers.Flatten(), dense(1, 2)])


class UnequalLast(Convolution):
    """Replicas get unequal shares of the last batch."""

    examples, held_out = 21, 13


class OneInLast(Convolution):
    """The last batch has one example, and most replicas none."""

    examples, held_out = 17, 9


class SmallerThanBatch(Convolution):
    examples, held_out = 5, 5


class SmallerThanReplicas(Convolution):
    examples, held_out = 1, 1


class SmallEvaluation(Sequential):
    held_out = 2


class UnknownSize(Sequential):
    """Only the end of the data tells how many batches it has."""

    examples = 21

    def plain_dataset(self, batch_size: int) -> Any:
        rows = tf.data.Dataset.from_tensor_slices(self.rows(self.examples, 0))
        return rows.filter(lambda rows, labels: tf.reduce_all(rows < 2.0)).batch(batch_size)


class Creator(Sequential):
    steps = 3

    def train_dataset(self, batch_size: int) -> Any:
        def make(context: tf.distribute.InputContext) -> Any:
            rows = tf.data.Dataset.from_tensor_slices(self.rows(self.examples, 0))
            rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
            return rows.repeat().batch(context.get_per_replica_batch_size(batch_size))

        return tf.keras.utils.experimental.DatasetCreator(make)


class Distributed(Sequential):
    def train_dataset(self, batch_size: int) -> Any:
        return tf.distribute.get_strategy().experimental_distribute_dataset(self.plain_dataset(batch_size))


class FileSharding(Sequential):
    """Two files, read in turns: a batch has as many examples of each."""

    steps = 3
    options: Mapping[str, Any] = {"autoShard": "FILE"}

    def plain_dataset(self, batch_size: int) -> Any:
        """Its size is not known."""
        files = [str(self.data / f"part-{index}.tfrecord") for index in range(2)]
        records = tf.data.Dataset.from_tensor_slices(files).interleave(
            tf.data.TFRecordDataset, cycle_length=2, block_length=1
        )

        def example(record: Any) -> Any:
            values = tf.reshape(tf.io.decode_raw(record, tf.float32), [5])
            return values[:4], values[4:]

        return records.map(example).batch(batch_size)

    def write(self) -> None:
        """The files."""
        features, labels = self.rows(self.examples, 0)
        self.data.mkdir(parents=True, exist_ok=True)
        for index in range(2):
            with tf.io.TFRecordWriter(str(self.data / f"part-{index}.tfrecord")) as file:
                for row in np.concatenate([features, labels], axis=1)[index::2]:
                    file.write(row.tobytes())


class DataSharding(FileSharding):
    options: Mapping[str, Any] = {"autoShard": "DATA"}


SHAPES: dict[str, type[Sequential]] = {
    "sequential": Sequential,
    "functional": Functional,
    "subclassed": Subclassed,
    "subclassed-training": SubclassedTraining,
    "inputs-outputs": InputsOutputs,
    "dict-inputs": DictInputs,
    "subclassed-dict": SubclassedDict,
    "lookup": Lookup,
    "preprocessing": Preprocessing,
    "lookup-inside": LookupInside,
    "add-loss": AddLoss,
    "regularizers": Regularizers,
    "recurrent": Recurrent,
    "masked": Masked,
    "embedding-sparse": EmbeddingSparse,
    "embedding-adam": EmbeddingAdam,
    "embedding-dense": EmbeddingDense,
    "batch-normalization": BatchNormalization,
    "batch-normalization-synchronized": BatchNormalizationSynchronized,
    "mixed-precision": MixedPrecision,
    "classes": Classes,
    "labels-nd": LabelsND,
    "labels-nd-unreduced": LabelsNDUnreduced,
    "sample-weights": SampleWeights,
    "class-weights": ClassWeights,
    "infinite": Infinite,
    "unknown-size": UnknownSize,
    "unequal-last": UnequalLast,
    "one-in-last": OneInLast,
    "smaller-than-batch": SmallerThanBatch,
    "smaller-than-replicas": SmallerThanReplicas,
    "small-evaluation": SmallEvaluation,
    "creator": Creator,
    "distributed": Distributed,
    "file-sharding": FileSharding,
    "data-sharding": DataSharding,
}
