"""The names of tasks, of their pods, and of the files by which they tell each other what comes."""

from __future__ import annotations

from typing import Final, Literal

DISPATCHER: Final = "dispatcher"

DATA_WORKER: Final = "data-worker"
"""The roles of the data service (`spec.dataService`)."""

EXTRA_WORKER: Final = "extra-worker"
"""The role of the workers beyond minReplicas, where a queue admits each of them by itself. TensorFlow takes
them for workers like the others, whose numbers follow on those.
"""


def task_type(role: str) -> str:
    """Returns the role of TF_CONFIG that a role of the run has."""
    return "worker" if role == EXTRA_WORKER else role


def in_names(role: str) -> str:
    """Returns the role as a part of the names of its Job and pods. It has no hyphen: the data workers of a
    run `x` and the workers of a run `x-data` would have the same names otherwise.
    """
    return role.replace("-", "")


def pod_name(run: str, role: str, index: int) -> str:
    """Returns the stable hostname that an Indexed Job gives its pod."""
    return f"{run}-{in_names(role)}-{index}"


TaskFile = Literal[
    "released",  # tells a server to leave; its text is the outcome
    "leaving",  # says that the server got SIGTERM
    "dismissed",  # tells a server that got SIGTERM that its chief has saved
    "identity",  # says what the server runs
    "chief",  # has the number of the context of the server's chief
    "copies",  # says at which port the server keeps copies of the training
    "profile",  # tells the task to begin or end a profile
]


def task_file(name: TaskFile, task_dir: str, pod: str, peer: str) -> str:
    """Returns the path of a file of `peer`, the pod name of a task.

    `task_dir` is the `Env.TASK_DIR` of the task that asks, and `pod` its `pod_name`. On Kubernetes every task
    has the same path on a disk of its own. Where tasks share a disk, the pod's name is a component of the
    path, and the peer's name replaces it.
    """
    parts = [peer if part == pod else part for part in task_dir.split("/")]
    return "/".join([*parts, name])
