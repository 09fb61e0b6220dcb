"""A script of the user's own, without the runtime: it gets TF_CONFIG and all Kubernetes features."""

from __future__ import annotations

from pathlib import Path

from tests.kind.runs import Runs

CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: own}
spec:
  strategy: MultiWorkerMirrored
  program: {source: ./train.py}
  command: [python, train.py]
  worker: {replicas: 2, resources: {cpu: 250m, memory: 1Gi}}
"""
SCRIPT = """\
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(0.0)


@tf.function
def step():
    def replica():
        return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group + 1, tf.float32)

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica), axis=None)


print("sum over", strategy.num_replicas_in_sync, "tasks:", float(step()), flush=True)
"""


def test_a_script_of_the_users_own(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "train.py").write_text(SCRIPT)
    runs.submit(file=tmp_path / "cluster.yaml")
    runs.succeeds("own")
    for index in (0, 1):
        log = runs.of("logs", "--raw", "--role", "worker", "--index", str(index), run="own").stdout
        assert "sum over 2 tasks: 3.0" in log
