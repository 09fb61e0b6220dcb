"""Which logs of a run are followed for its progress."""

from __future__ import annotations

from launcher.backends.kubernetes.state.run_state import RunState, SlimPod
from launcher.object_names import ROLE_LABEL
from launcher.status import task_of


def has_begun(pod: SlimPod) -> bool:
    """Whether the pod runs or has run, so that there may be a log."""
    return pod["status"]["phase"] not in (None, "Pending")


def tells_progress(run_state: RunState, pod: SlimPod) -> bool:
    """Whether the pod is the primary's first task, which reports the training, or the evaluator."""
    role, index = task_of(pod)
    primary = run_state.primary
    roles = ("evaluator", primary["metadata"]["labels"].get(ROLE_LABEL) if primary else None)
    return index == 0 and role in roles
