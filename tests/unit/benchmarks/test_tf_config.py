"""The bytes of TF_CONFIG that `make bench-cli` counts, against TF_CONFIGs written out."""

import json
from pathlib import Path

from benchmarks import tf_config
from launcher import plan_of_file
from launcher.validation import loader

CLUSTER = """
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: run}
spec:
  strategy: ParameterServer
  program: {entrypoint: "module:Program"}
  modelDir: gs://bucket/run
  worker: {replicas: 1}
  ps: {replicas: 1}
"""


def test_a_tfjob_tells_every_pod_of_all() -> None:
    address = "run-{}.default.svc:2222".format
    cluster = {"chief": [address("chief-0")], "worker": [address("worker-0"), address("worker-1")]}
    whole = [
        json.dumps(
            {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"},
            separators=(",", ":"),
        )
        for role, index in (("chief", 0), ("worker", 0), ("worker", 1))
    ]
    assert tf_config.tfjob("run", "default", {"chief": 1, "worker": 2}) == sum(map(len, whole))


def test_ours_is_counted_in_every_pod_and_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    (loaded,) = loader.load(str(path), ["spec.worker.replicas=4000"])
    objects = plan_of_file.plan(loaded).objects
    assert tf_config.replicas(objects) == {"chief": 1, "worker": 4000, "ps": 1}
    address = "run-{}.run:2222".format
    alone = '{{"cluster":{{"{0}":{{"$(TASK_INDEX)":"{1}"}}}},"task":{{"type":"{0}","index":$(TASK_INDEX)}}}}'
    listed = {
        "chief": [address("chief-0")],
        "worker": [address(f"worker-{index}") for index in range(4000)],
        "ps": [address("ps-0")],
    }
    expected = [
        *[alone.format("worker", address("worker-$(TASK_INDEX)"))] * 4000,
        alone.format("ps", address("ps-$(TASK_INDEX)")),
        json.dumps(listed, separators=(",", ":")),
    ]
    assert any("cluster.json" in item.get("data", {}) for item in objects)
    assert tf_config.stored(objects) == sum(map(len, expected))
