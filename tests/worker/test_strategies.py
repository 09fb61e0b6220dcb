"""Every strategy's options: what they make, and what is said where the machine lacks what they ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.free_ports import free_addresses
from tests.worker.cluster import ROOT
from worker.contract.exit_codes import ExitCode

# A list of [strategy, options] in, for each what it made or the message; in one process, since that costs
# seconds. All with two logical CPUs, which can only be set once.
_BUILD = """
import json, sys
import numpy as np
import tensorflow as tf
from worker import strategies
from worker.contract.run_config import RunConfig
from worker.failures import Failure
from worker.task import Task

def made(name, options):
    config = RunConfig(
        run="r", strategy=name, strategy_options=options, replicas={"chief": 1},
        starting_deadline_seconds=1, stall_seconds=1, chief_lost_seconds=1,
    )
    try:
        strategy = strategies.build(Task(config, "chief", 0, {}, None, None))
    except Failure as failure:
        return {"message": failure.message, "code": int(failure.exit_code)}
    @tf.function
    def total():
        def ones():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([3]))
        return strategy.run(ones)
    sums = strategy.experimental_local_results(total())
    with strategy.scope():
        count = tf.Variable(3)
    operations = getattr(strategy.extended, "_cross_device_ops", None)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "sums": [float(value) for value in sums[0]],
        "numbers": [int(count), float(count), np.asarray(count).tolist()],
        "devices": [device.rpartition("/")[2] for device in strategy.extended.worker_devices],
        "ops": type(operations).__name__,
        "packs": getattr(operations, "_num_packs", None),
        "communication": str(getattr(strategy.extended, "_communication_options", "")),
    }

print(json.dumps([made(*asked) for asked in json.loads(sys.argv[1])]))
"""


def built(*asked: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, json.dumps(asked)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_each_option_reaches_its_strategy() -> None:
    two = {"logicalCpus": 2}
    plain, chosen, one, packed, reduced, central, device, left_out, workers = built(
        ("Mirrored", two),
        ("Mirrored", {**two, "devices": ["CPU:0", "/cpu:1"]}),
        ("Mirrored", {**two, "devices": ["CPU:1"]}),
        ("Mirrored", {**two, "crossDeviceOps": "HierarchicalCopy", "numPacks": 3}),
        ("Mirrored", {**two, "crossDeviceOps": "ReductionToOneDevice"}),
        ("CentralStorage", two),
        ("OneDevice", {"device": "CPU:1"}),
        ("OneDevice", {}),
        ("MultiWorkerMirrored", {**two, "communication": "RING", "bytesPerPack": 4096}),
    )
    for replicated in (plain, chosen, packed, reduced, central, workers):
        assert replicated["replicas"] == 2
        assert replicated["sums"] == [2.0, 2.0, 2.0], "the replicas' ones, summed"
        assert replicated["devices"] == ["device:CPU:0", "device:CPU:1"]
    assert (one["replicas"], one["devices"]) == (1, ["device:CPU:1"])
    assert (packed["ops"], packed["packs"]) == ("HierarchicalCopyAllReduce", 3)
    assert reduced["ops"] == "ReductionToOneDevice"
    assert device["devices"] == ["device:CPU:1"]
    assert left_out["devices"] == ["device:CPU:0"]
    assert "bytes_per_pack=4096" in workers["communication"]
    assert "RING" in workers["communication"]
    for variables in (plain, workers, device):
        assert variables["numbers"] == [3, 3.0, 3], "a replicated variable is a number in Python"


_PARTITION = """
import json, os, sys
import tensorflow as tf
from worker import strategies
from worker.contract.run_config import RunConfig
from worker.task import Task

asked, addresses = json.loads(sys.argv[1]), json.loads(sys.argv[2])
cluster = {"chief": addresses[:1], "worker": addresses[1:2], "ps": addresses[2:]}
spec = tf.train.ClusterSpec({role: cluster[role] for role in ("worker", "ps")})
servers = [
    tf.distribute.Server(spec, job_name=role, task_index=index, protocol="grpc")
    for role in ("worker", "ps") for index in range(len(cluster[role]))
]
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
members = {role: dict(enumerate(tasks)) for role, tasks in cluster.items()}
found = []
for options in asked:
    config = RunConfig(
        run="r", strategy="ParameterServer", strategy_options=options, replicas={"chief": 1},
        starting_deadline_seconds=1, stall_seconds=1, chief_lost_seconds=1,
    )
    strategy = strategies.build(Task(config, "chief", 0, members, None, None))
    with strategy.scope():
        table = tf.Variable(tf.reshape(tf.range(64.0 * 4), [64, 4]))
        found.append([int(shard.shape[0]) for shard in getattr(table, "variables", [table])])
        words = tf.Variable(tf.fill([64], "x"))
        found[-1].append(len(getattr(words, "variables", [words])))
        of_none, unknown = tf.zeros([2, 0]), tf.TensorShape([2, None])
        tf.Variable(of_none)
        tf.Variable(lambda: of_none, shape=unknown)
print(json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.mark.thorough
@pytest.mark.nightly
def test_each_partitioner_splits_variables_as_tensorflows_own_does() -> None:
    """A table of 64 rows of 16 bytes, over 2 parameter servers; and 64 strings."""
    asked: list[dict[str, Any]] = [
        {},
        {"minShardBytes": 16},
        {"partitioner": "MinSize", "minShardBytes": 200, "maxShards": 8, "bytesPerString": 100},
        {"partitioner": "MaxSize", "maxShardBytes": 300},
        {"partitioner": "MaxSize", "maxShardBytes": 300, "maxShards": 2, "bytesPerString": 1},
        {"partitioner": "FixedShards", "numShards": 3},
        {"partitioner": "FixedShards", "numShards": 100},
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "-1", "GRPC_FAIL_FAST": "use_caller"}
    arguments = [json.dumps(asked), json.dumps(free_addresses(4))]
    done = subprocess.run(
        [sys.executable, "-c", _PARTITION, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [64, 1],
        [32, 32, 2],
        [11, 11, 11, 11, 10, 10, 8],
        [16, 16, 16, 16, 4],
        [32, 32, 1],
        [22, 21, 21, 3],
        [*[1] * 64, 64],
    ]


@pytest.mark.thorough
def test_what_the_machine_lacks_is_one_message_that_names_the_option() -> None:
    gpu, gpus, third, unknown, nccl, over_nccl, tpu = built(
        ("OneDevice", {"device": "GPU:0"}),
        ("Mirrored", {"devices": ["CPU:0", "GPU:1"]}),
        ("Mirrored", {"devices": ["CPU:2"]}),
        ("OneDevice", {"device": "the fast one"}),
        ("Mirrored", {"crossDeviceOps": "Nccl"}),
        ("MultiWorkerMirrored", {"communication": "NCCL"}),
        ("TPU", {}),
    )
    assert gpu["message"].startswith("spec.strategyOptions.device: there is no GPU:0 here, only CPU:0;")
    assert gpus["message"] == (
        "spec.strategyOptions.devices: there is no GPU:1 here, only CPU:0; ask for nvidia.com/gpu in "
        "resources and use an image with GPU support, or leave it out for all GPUs or the CPU"
    )
    assert third["message"].startswith("spec.strategyOptions.devices: there is no CPU:2 here, only CPU:0, or")
    assert unknown["message"].startswith("spec.strategyOptions.device: there is no the fast one here")
    assert nccl["message"].startswith("spec.strategyOptions.crossDeviceOps: Nccl sums over GPUs")
    assert over_nccl["message"].startswith("spec.strategyOptions.communication: NCCL connects GPUs")
    assert tpu["message"].startswith("spec.strategy: TPU: no TPU was found in this pod")
    for refused in (gpu, gpus, third, unknown, nccl, over_nccl, tpu):
        assert refused["code"] == ExitCode.PROGRAM_ERROR
        assert "\n" not in refused["message"]
