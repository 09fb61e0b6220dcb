"""A parameter-server script: `own.py HOW`. It adds one to a variable on the ps, 20 times for each epoch."""

import sys

import tensorflow as tf

import worker
from worker.task import from_environment


class BrokenError(Exception):
    pass


def main(how: str) -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    listed = {name: len(tasks) for name, tasks in resolver.cluster_spec().as_dict().items()}
    print("sees", sorted(listed.items()), sys.argv[1:], __name__, flush=True)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step() -> None:
        total.assign_add(1)

    for epoch in range(10_000 if how == "long" else 2):
        for _ in range(20):
            coordinator.schedule(step)
        coordinator.join()
        print("epoch", epoch + 1, flush=True)
    if how == "broken":
        raise BrokenError(f"no more than {total.numpy() // total.numpy()} of these")
    print("enough" if total.numpy() >= 40 else "too few", flush=True)
    if how == "release":
        worker.release()
        worker.release()
        print("released", from_environment().name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
