"""A script that was written for one machine, and does not know of a cluster."""

import tensorflow as tf

print("trained", float(tf.reduce_sum(tf.ones((2, 2)))), flush=True)
