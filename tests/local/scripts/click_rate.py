"""A script as an image would contain it. It reads TF_CONFIG as TensorFlow's own guide does. Only the chief
ever ends.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
model = parser.parse_args().model

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
print(f"a {sorted(config['cluster'])} of a {config.get('environment')}", flush=True)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()

if task["type"] in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc"
    )
    server.join()

if task["type"] == "evaluator":
    slope = tf.Variable(0.0)
    for path in tf.train.checkpoints_iterator(model):
        tf.train.Checkpoint(slope=slope).restore(path).assert_existing_objects_matched()
        print(f"scored, off by {abs(slope.numpy() - 3.0):.1f}", flush=True)
        Path(model, "scored").touch()

if len(config["cluster"]["worker"]) != 2:
    sys.exit("the list is not a full one")
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    slope = tf.Variable(0.0)


def train_step() -> None:
    def on_replica() -> None:
        x = tf.random.normal([32])
        error = x * slope - x * 3.0
        slope.assign_sub(0.1 * 2.0 * tf.reduce_mean(error * x))

    strategy.run(on_replica)


step = tf.function(train_step)
for _ in range(100):
    coordinator.schedule(step)
coordinator.join()
assert abs(slope.numpy() - 3.0) < 0.1, slope.numpy()
tf.train.Checkpoint(slope=slope).save(f"{model}/ckpt")
while not Path(model, "scored").exists():
    time.sleep(0.1)
