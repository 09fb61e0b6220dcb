"""The names of tasks, of their pods, and of the files by which they tell each other what comes."""

from __future__ import annotations

from typing import Final

DISPATCHER: Final = "dispatcher"

DATA_WORKER: Final = "data-worker"
"""The roles of the data service (`spec.dataService`)."""


def in_names(role: str) -> str:
    """Returns the role as a part of the names of its Job and pods. It has no hyphen: the data workers of a
    run `x` and the workers of a run `x-data` would have the same names otherwise.
    """
    return role.replace("-", "")


def pod_name(run: str, role: str, index: int) -> str:
    """Returns the stable hostname that an Indexed Job gives its pod."""
    return f"{run}-{in_names(role)}-{index}"


def released_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file that tells `peer` to leave. Its text is the outcome.

    `task_dir` is the `Env.TASK_DIR` of the task that asks, and `pod` its `pod_name`; `peer` is that of the
    other task. On Kubernetes every task has the same path on a disk of its own. Where tasks share a disk, the
    pod's name is a component of the path, and the peer's name replaces it.
    """
    return _peers_file(task_dir, pod, peer, "released")


def leaving_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file that says that the server `peer` got SIGTERM. Arguments as in
    `released_path`.
    """
    return _peers_file(task_dir, pod, peer, "leaving")


def dismissed_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file that tells the server `peer`, which got SIGTERM, that its chief has saved.
    Arguments as in `released_path`.
    """
    return _peers_file(task_dir, pod, peer, "dismissed")


def identity_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file in which the server `peer` says what it runs. Arguments as in
    `released_path`.
    """
    return _peers_file(task_dir, pod, peer, "identity")


def chief_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file in which the server `peer` has the number of its chief's context.
    Arguments as in `released_path`.
    """
    return _peers_file(task_dir, pod, peer, "chief")


def copies_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file in which the server `peer` says at which port it keeps copies of the
    training. Arguments as in `released_path`.
    """
    return _peers_file(task_dir, pod, peer, "copies")


def profile_path(task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of the file that tells `peer` to begin or end a profile. Arguments as in
    `released_path`.
    """
    return _peers_file(task_dir, pod, peer, "profile")


def _peers_file(task_dir: str, pod: str, peer: str, name: str) -> str:
    parts = [peer if part == pod else part for part in task_dir.split("/")]
    return "/".join([*parts, name])
