"""`benchmarks.soak` on Kubernetes: the kubeconfig's cluster, or a control plane with pods that are played."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks import pods, processes
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.connection import connect
from launcher.errors import LauncherError
from launcher.object_names import CONTAINER, RUN_LABEL
from launcher.run import Run

_KINDS: Final = ("Job", "Pod", "Service", "ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "Deployment")
_COLLECT_SECONDS: Final = 60.0
"""For Kubernetes' garbage collection to finish what was begun."""
_PLAY_SECONDS: Final = 0.2
_TASK: Final = ("tf-launcher.dev/role", "batch.kubernetes.io/job-completion-index")
"""The labels of a pod that say which task it is."""


class Player:
    """Lets the pods of a namespace run for a second or two, where there is no kubelet."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._over = threading.Event()
        self._ends: dict[str, float] = {}
        """When a pod that runs is to end, by uid."""
        self._killed: set[str] = set()
        self._thread = threading.Thread(target=self._play, name="player", daemon=True)
        self._thread.start()

    def kill(self, pod: Mapping[str, Any]) -> None:
        """Lets it fail, as after SIGKILL."""
        self._killed.add(pod["metadata"]["uid"])

    def stop(self) -> None:
        """All pods stay as they are."""
        self._over.set()
        self._thread.join()

    def _play(self) -> None:
        while not self._over.wait(_PLAY_SECONDS):
            pods, _ = self._client.list("Pod", self._namespace, RUN_LABEL)
            for pod in pods:
                try:
                    self._move(pod)
                except ApiError:  # deleted, or changed, in between
                    continue

    def _move(self, pod: Mapping[str, Any]) -> None:
        uid, phase = pod["metadata"]["uid"], pod["status"]["phase"]
        if phase == "Pending":
            self._ends[uid] = time.monotonic() + random.uniform(1.0, 2.0)
            self._set(pod, "Running", {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}})
        elif phase == "Running" and uid in self._killed:
            self._end(pod, 137)
        elif phase == "Running" and time.monotonic() >= self._ends.get(uid, 0.0):
            self._end(pod, 0)

    def _end(self, pod: Mapping[str, Any], code: int) -> None:
        began = pod["metadata"]["creationTimestamp"]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": began}
        phase = "Failed" if code else "Succeeded"
        self._set(pod, phase, {"terminated": {**state, "finishedAt": now}, "running": None})
        self._killed.discard(pod["metadata"]["uid"])

    def _set(self, pod: Mapping[str, Any], phase: str, state: Mapping[str, Any]) -> None:
        running = phase == "Running"
        container = {"name": CONTAINER, "image": "", "imageID": "", "restartCount": 0, "ready": running}
        status = {
            "phase": phase,
            "startTime": pod["metadata"]["creationTimestamp"],
            "conditions": [{"type": "Ready", "status": str(running)}],
            "containerStatuses": [{**container, "state": state}],
        }
        self._client.merge("Pod", self._namespace, f"{pod['metadata']['name']}/status", {"status": status})


@dataclass
class Cluster:
    """One namespace of a cluster. See `soak_runs.Place`."""

    client: Client
    namespace: str
    player: Player | None
    image: str
    environment: dict[str, str]
    backend: Literal["local", "kubernetes"] = "kubernetes"
    ends: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {
            "nothing": ("Succeeded",),
            "task killed": ("Succeeded",),
            "follower killed": ("Succeeded",),
            "suspended": ("Succeeded",),
            "replaced": ("Succeeded",),
            "deleted": ("deleted",),
            # A cluster's run goes on without whoever follows it.
            "submit killed": ("Succeeded",),
            "Ctrl-C": ("Succeeded",),
        }
    )

    def __post_init__(self) -> None:
        """Pods that are only played have no processes, and are not evicted."""
        if self.player is None:
            self.ends = {**self.ends, "process killed": ("Succeeded",), "evicted": ("Succeeded",)}

    def begun(self, run: Run, is_training: bool) -> None:
        """See `soak_runs.Place`."""

    def injure(self, kind: str, run: Run, chance: random.Random) -> None:
        """See `soak_runs.Place`."""
        there, _ = self.client.list("Pod", self.namespace, f"{RUN_LABEL}={run.name}")
        running = [pod for pod in there if pod["status"]["phase"] == "Running"]
        if not running:
            return
        pod = chance.choice(running)
        metadata = pod["metadata"]
        if self.player is not None:
            self.player.kill(pod)
        elif kind in ("evicted", "process killed"):
            role, index = (metadata["labels"][key] for key in _TASK)
            with contextlib.suppress(pods.GoneError):
                if kind == "evicted":
                    pods.evict(self.namespace, metadata["name"])
                else:
                    in_place = chance.random() < 0.5
                    pods.kill_in_pod(run.name, self.namespace, role, int(index), in_place=in_place)
        else:
            self.client.delete_all(
                "Pod", self.namespace, f"{RUN_LABEL}={run.name},{_index_of(metadata)}", grace=0
            )

    def left(self) -> dict[str, list[str]]:
        """See `soak_runs.Place`."""
        deadline = time.monotonic() + _COLLECT_SECONDS
        while (objects := self._objects()) and time.monotonic() < deadline:
            time.sleep(1.0)
        pids = processes.with_environment(f"XDG_STATE_HOME={self.environment['XDG_STATE_HOME']}")
        return {"processes": [str(pid) for pid in pids], "objects": objects}

    def _objects(self) -> list[str]:
        return [
            f"{kind} {item['metadata']['name']}"
            for kind in _KINDS
            for item in self.client.list(kind, self.namespace, RUN_LABEL)[0]
        ]


def _index_of(metadata: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={metadata['labels'][key]}" for key in _TASK)


@contextmanager
def cluster(image: str) -> Iterator[Cluster]:
    """The one that KUBECONFIG names, or else one of our own, from KUBEBUILDER_ASSETS. Without an image the
    pods are only played.
    """
    with tempfile.TemporaryDirectory(prefix="soak-") as name, ExitStack() as stack:
        kubeconfig = os.environ.get("KUBECONFIG", "")
        if not kubeconfig:
            from benchmarks.control_plane import control_plane

            kubeconfig = str(stack.enter_context(control_plane(Path(name))).kubeconfig)
            image = ""
        # Not before: the servers are not the launcher's, and are not looked for afterwards.
        environment = {"XDG_STATE_HOME": name, "KUBECONFIG": kubeconfig}
        os.environ.update(environment)
        try:
            connection = connect()
        except LauncherError as error:
            raise SystemExit(f"error: {error}") from None
        player = None if image else Player(Client(connection), connection.namespace)
        if player is not None:
            stack.callback(player.stop)
        yield Cluster(Client(connection), connection.namespace, player, image, environment)
