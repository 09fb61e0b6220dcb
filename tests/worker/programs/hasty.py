"""A program that runs a TensorFlow operation when it is imported."""

import tensorflow as tf
from tiny import Tiny

SEED = tf.constant(1) + 1


class Hasty(Tiny):
    """As Tiny."""
