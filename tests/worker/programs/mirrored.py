"""A script of a MultiWorkerMirrored run: every task adds up everyone's number. `mirrored.py [FAILING]`."""

import sys

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
failing = sys.argv[1:] == [str(resolver.task_id)]


@tf.function
def added() -> tf.Tensor:
    def own() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.constant(resolver.task_id + 1)
        )

    return strategy.experimental_local_results(strategy.run(own))[0]


print("the sum is", int(added()), flush=True)
if failing:
    raise ValueError("my share is empty")
if sys.argv[1:]:
    for _ in range(10_000):
        added()
