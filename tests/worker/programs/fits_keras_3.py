"""A script that calls Model.fit of Keras 3 under the strategy of its task."""

import keras
import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if "ps" in resolver.cluster_spec().jobs:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
rows = np.ones((8, 4), "float32")
data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(4).repeat()
model.fit(data, steps_per_epoch=2, verbose=0)
