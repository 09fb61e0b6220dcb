"""The table of how runs end, tested with a follower on a real API server and its Job controller."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher.backends.base import Plan
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.run_end.enforcement import CleanUpSettings
from launcher.object_names import NEEDED_ANNOTATION
from launcher.status import Phase, RunStatus
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api
from tests.api.runs import RUN, Follower, plan
from tests.run_end_cases import Case, each_case, play, stopped


def submission(case: Case, directory: Path, namespace: str) -> Plan:
    """Returns a plan with the case's roles only."""
    overrides = [f"spec.runPolicy.cleanPolicy={case.clean_policy}", "spec.runPolicy.backoffLimit=0"]
    overrides += ["spec.worker.replicas=1"]
    overrides += [
        f"spec.{role}.command=[python, server.py]" for role, other in case.others.items() if not other.leaves
    ]
    planned = plan(directory, namespace, *overrides)
    objects = copy.deepcopy(list(planned.objects))
    kept = [dict(item) for item in objects if item["kind"] != "Job" or _role(item) in ("chief", *case.others)]
    for item in kept:
        other = case.others.get(_role(item)) if item["kind"] == "Job" else None
        if other is not None and other.needed is not None:
            annotations = item["metadata"].setdefault("annotations", {})
            annotations[NEEDED_ANNOTATION] = str(other.needed).lower()
    return Plan(planned.run, planned.namespace, kept, planned.addresses)


def _role(item: Mapping[str, Mapping[str, str]]) -> str:
    return item["metadata"]["name"].removeprefix(f"{RUN}-")


class Pods:
    """The run of a case, whose pods the test plays. A waiting role's pod is never scheduled."""

    def __init__(self, backend: KubernetesBackend, kubelet: Kubelet, case: Case, directory: Path) -> None:
        backend.submit(submission(case, directory, kubelet.namespace), detach=True)
        self.follower = Follower(backend.follow(RUN, kubelet.namespace))
        self._kubelet = kubelet
        for role in ("chief", *(role for role, other in case.others.items() if other.does != "waits")):
            kubelet.start(role)

    def end(self, role: str, exit_code: int) -> None:
        """See `Stage.end`."""
        self._kubelet.end(self._kubelet.pods(role)[0], exit_code)

    def until(self, condition: Callable[[RunStatus], bool]) -> RunStatus:
        """See `Stage.until`."""
        return self.follower.until(condition)


@each_case
def test_a_run_ends_as_the_policy_says(api: Api, kubelet: Kubelet, tmp_path: Path, case: Case) -> None:
    backend = KubernetesBackend(str(api.kubeconfig), settings=CleanUpSettings(**vars(case.limits)))
    pods = Pods(backend, kubelet, case, tmp_path)
    status = play(case, pods)
    assert status.phase is case.phase
    assert stopped(status) == case.words(RUN, may_go_on=True)
    going_on = {role.role for role in status.roles if role.phase not in (Phase.SUCCEEDED, Phase.FAILED)}
    assert going_on == set(case.left)
    words = "left running, since runPolicy.cleanPolicy is None: "
    left = [notice for notice in pods.follower.notices if notice.startswith(words)]
    assert left == ([words + ", ".join(f"{RUN}-{role}" for role in case.left)] if case.left else [])
