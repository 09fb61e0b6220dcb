"""Runs a TensorFlow operation when it is imported, and fails before or after it where HASTY_FAILS says so."""

import os

import tensorflow as tf
from tiny import Tiny

FAILS = os.environ.get("HASTY_FAILS")
if FAILS == "before":
    raise RuntimeError("no operation yet")
SEED = tf.constant(1) + 1
if FAILS == "after":
    raise RuntimeError("an operation was run")


class Hasty(Tiny):
    """As Tiny."""
