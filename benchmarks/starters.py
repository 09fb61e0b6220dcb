"""Who starts a run, and what each tells the cluster: the same pods, by the launcher and by what users would
pick instead.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import tf_config
from benchmarks.measuring import ROOT
from launcher import plan_of_file
from launcher.backends.base import Plan
from launcher.plan import serialization
from launcher.validation import loader

DEMO = str(ROOT / "examples" / "fashion-mnist" / "cluster.yaml")
LAUNCHER = [sys.executable, "-m", "launcher"]
LABEL = "tf-launcher.dev/run"
TFJOB_ROLES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
LONGEST = 131_072
"""Bytes of one string of a process' environment, with its name, in Linux (MAX_ARG_STRLEN)."""

Objects = Sequence[Mapping[str, Any]]


class Starter(NamedTuple):
    """`manifests` makes what is given to `kubectl apply`, of a plan; None: the launcher submits it."""

    name: str
    namespace: str
    manifests: Callable[[Plan], Objects] | None

    def command(self, run: str, workers: int, manifests: Path) -> list[str]:
        """Starts the run. What it needs is in the file `manifests` then."""
        if self.manifests is None:
            return submit(run, workers, self.namespace)
        plan = planned(run, workers, self.namespace, as_jobset=self.manifests is jobset)
        manifests.write_text(serialization.as_json(self.manifests(plan)))
        # Without --server-side kubectl keeps each object once more in an annotation, of 256 KiB at most.
        return ["kubectl", "apply", "--server-side", "-f", str(manifests)]

    def impossible(self, run: str, workers: int) -> str:
        """Why its pods could not start, "" where they could."""
        if self.manifests is not tfjob:
            return ""
        tasks = tf_config.replicas(planned(run, workers, self.namespace).objects)
        bytes_ = tf_config.tfjob(run, self.namespace, tasks) // sum(tasks.values())
        if bytes_ < LONGEST:
            return ""
        return f"its pods cannot start: a TF_CONFIG of {bytes_:,} bytes, and Linux takes {LONGEST:,}"


def starters(peers: Sequence[str], namespace: str, *, bare: bool = False) -> list[Starter]:
    """The launcher, kubectl, and `peers` as they were given: `tfjob`, `jobset:other-namespace`; `bare` adds
    kubectl without the Service.
    """
    all_starters = [Starter("submit", namespace, None)]
    if shutil.which("kubectl"):
        all_starters.append(Starter("kubectl apply", namespace, lambda plan: plan.objects))
        if bare:
            all_starters.append(Starter("the same, no Service", namespace, no_service))
    elif peers or bare:
        raise SystemExit("--peer and --no-service need kubectl, which applies the objects")
    for peer in peers:
        kind, _, other = peer.partition(":")
        if kind not in PEERS:
            raise SystemExit(f"--peer {peer}: expected one of {', '.join(PEERS)}")
        name, manifests = PEERS[kind]
        all_starters.append(Starter(f"{name} in {other}" if other else name, other or namespace, manifests))
    return all_starters


def overrides(run: str, workers: int, *, suspended: bool = False) -> list[str]:
    """Of the demo. A suspended run has all its objects, and no pods."""
    return [
        f"metadata.name={run}",
        f"spec.worker.replicas={workers}",
        f"spec.runPolicy.suspend={str(suspended).lower()}",
        "spec.storage.reclaimPolicy=Delete",
    ]


def planned(
    run: str, workers: int, namespace: str, *, suspended: bool = False, as_jobset: bool = False
) -> Plan:
    """What is submitted."""
    (loaded,) = loader.load(DEMO, overrides(run, workers, suspended=suspended))
    return plan_of_file.plan(plan_of_file.placed(loaded, None, namespace), run, as_jobset=as_jobset)


def submit(run: str, workers: int, namespace: str, *, suspended: bool = False) -> list[str]:
    """The command."""
    flags = [f"--set={override}" for override in overrides(run, workers, suspended=suspended)]
    return [*LAUNCHER, "submit", DEMO, "--detach", "-n", namespace, *flags]


def jobset(plan: Plan) -> Objects:
    """For JobSet's controller, as `render --as jobset` prints it."""
    return plan.objects


def tfjob(plan: Plan) -> Objects:
    """For the training-operator: the Jobs' pods, less their TF_CONFIG, as replicas of a TFJob. Its pods have
    Services of their own.
    """
    replicas = {}
    for item in plan.objects:
        if item["kind"] == "Job":
            template = deepcopy(item["spec"]["template"])
            (container,) = template["spec"]["containers"]
            container["env"] = [each for each in container["env"] if each["name"] != "TF_CONFIG"]
            # By any other name the operator would add a port of the same number, which no Service can have.
            container["ports"][0]["name"] = "tfjob-port"
            del template["spec"]["subdomain"]
            role = TFJOB_ROLES[item["metadata"]["labels"]["tf-launcher.dev/role"]]
            replicas[role] = {
                "replicas": item["spec"]["completions"],
                "restartPolicy": template["spec"].pop("restartPolicy"),
                "template": template,
            }
    metadata = {field: plan.objects[0]["metadata"][field] for field in ("namespace", "labels")}
    whole = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {**metadata, "name": plan.run},
        "spec": {"tfReplicaSpecs": replicas},
    }
    return [whole, *(item for item in plan.objects if item["kind"] not in ("Job", "Service"))]


def no_service(plan: Plan) -> Objects:
    """Whose tasks would not find each other: what it costs less is what any Services cost."""
    return [item for item in plan.objects if item["kind"] != "Service"]


PEERS = {"tfjob": ("TFJob", tfjob), "jobset": ("JobSet", jobset)}
