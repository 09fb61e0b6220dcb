"""What the launcher and the worker runtime agree on, and nothing else.

Standard library only: the launcher imports this module, and the launcher never imports TensorFlow.

- `ExitCode`: what a task says by ending. The manifests' podFailurePolicy is made of these.
- `Env`: the environment variables that the manifests set and the runtime reads.
- `RunConfig`: the document behind `Env.CONFIG`, one for all tasks of a run.
- `Record`: a line of progress on standard output.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Any, Final

PORT: Final = 2222
"""Every task's gRPC port, TensorFlow's customary one."""


GRACE_SECONDS: Final = 30
"""From SIGTERM to SIGKILL: Kubernetes' own default of a pod's terminationGracePeriodSeconds."""


class ExitCode(IntEnum):
    """What a task says by ending.

    1 is left out on purpose: it is what a container ends with when its command cannot be executed
    (an environment string over 128 KiB, for one), and what any crashing script says.
    """

    DONE = 0
    """Finished, or released by the chief."""
    PROGRAM_ERROR = 70
    """The program is wrong; trying again cannot help. EX_SOFTWARE of sysexits.h."""
    RETRYABLE = 75
    """A peer was lost, or nothing moved for `stall_seconds`. EX_TEMPFAIL of sysexits.h."""
    PREEMPTED = 143
    """Left on SIGTERM (128 + 15), as a process without a handler would. Never 0: a Job would count
    a drained worker as finished and not replace it."""


class Env:
    """Names of environment variables. All but TF_CONFIG are reserved to the launcher."""

    TF_CONFIG: Final = "TF_CONFIG"
    """TensorFlow's own: `{"cluster": {role: [address]}, "task": {"type": role, "index": int}}`."""
    TASK_INDEX: Final = "TASK_INDEX"
    """The pod's completion index; TF_CONFIG refers to it as `$(TASK_INDEX)`."""
    ROLE: Final = "TF_LAUNCHER_ROLE"
    """chief, worker, ps or evaluator; there also where a task has no TF_CONFIG."""
    CONFIG: Final = "TF_LAUNCHER_CONFIG"
    """Path of the `RunConfig` document (JSON)."""
    CLUSTER_FILE: Final = "TF_LAUNCHER_CLUSTER_FILE"
    """Path of the cluster spec (JSON: the value of TF_CONFIG's "cluster"), set in place of TF_CONFIG
    where that would be too long for an environment string; the task is ROLE and TASK_INDEX."""
    TASK_DIR: Final = "TF_LAUNCHER_TASK_DIR"
    """This task's private, writable directory; see `released_path`."""
    SOURCE: Final = "TF_LAUNCHER_SOURCE"
    """Directory of the program's source, to be put on the module path; unset without a source."""

    RESERVED: Final = frozenset({TF_CONFIG, TASK_INDEX, ROLE, CONFIG, CLUSTER_FILE, TASK_DIR, SOURCE})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run as every task sees it. JSON names are the fields' own.

    `replicas` counts the tasks of each role: `{"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}`.
    `chief_address` is `host:port` of the task whose end is the run's end, None in a one-task run.
    `model_dir` is a path or a URL that `tf.io.gfile` opens. Durations are in seconds.
    `strategy_options` and `evaluation` are the spec's, without what was left out, `keras` is 2 or 3.
    `run_id` tells one submission of a name from the next; of what `launcher render` prints it is a digest,
    so that the same file is the same run. `grace_seconds` are those from SIGTERM to SIGKILL, of each role
    whose pods do not have GRACE_SECONDS.
    """

    run: str
    run_id: str = ""
    strategy: str
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    entrypoint: str | None = None
    keras: int = 2
    parameters: Mapping[str, Any] = field(default_factory=dict)
    model_dir: str | None = None
    replicas: Mapping[str, int]
    chief_address: str | None = None
    starting_deadline_seconds: int
    stall_seconds: int
    chief_lost_seconds: int
    grace_seconds: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line, keys sorted: the same run gives the same ConfigMap."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Reads `to_json`. Raises ValueError when it is not such a document. Fields of a later
        version are passed over, so that launcher and image need not be of one version.
        """
        try:
            document = json.loads(text)
            known = {f.name for f in fields(cls)}
            return cls(**{name: value for name, value in document.items() if name in known})
        except (AttributeError, TypeError) as error:
            raise ValueError(f"not a run configuration: {error}") from error


def pod_name(run: str, role: str, index: int) -> str:
    """The stable hostname that an Indexed Job gives its pod."""
    return f"{run}-{role}-{index}"


def released_path(task_dir: str, own: str, peer: str) -> str:
    """The file that, once it is there, tells `peer` to leave; its text is the outcome.

    `task_dir` is the asking task's own `Env.TASK_DIR`, `own` and `peer` are `pod_name`s. On Kubernetes
    every task has the same path on a disk of its own. Where tasks share a disk, the pod's name is a
    component of the path and is replaced by the peer's.
    """
    return _peers_file(task_dir, own, peer, "released")


def leaving_path(task_dir: str, own: str, peer: str) -> str:
    """The file that says that the server `peer` was told to leave; otherwise as `released_path`."""
    return _peers_file(task_dir, own, peer, "leaving")


def _peers_file(task_dir: str, own: str, peer: str, name: str) -> str:
    parts = [peer if part == own else part for part in task_dir.split("/")]
    return "/".join([*parts, name])


class Event:
    """What a `Record` can be about, with the fields it carries."""

    WAITING: Final = "waiting"
    """Peers that do not answer yet. tasks: list of pod names, seconds: float waited so far,
    deadline: int seconds."""
    READY: Final = "ready"
    """A worker or ps: its server is up. An evaluator: it looks for checkpoints."""
    TRAINING: Final = "training"
    """Begins. epochs, steps_per_epoch (null: unknown), initial_epoch: int done before this attempt."""
    PROGRESS: Final = "progress"
    """epoch (from 1), epochs, step (in the epoch), steps (of the epoch, null: unknown),
    steps_per_second, loss (null: not known yet), metrics: {name: float}, epoch_end: bool."""
    EVALUATION: Final = "evaluation"
    """checkpoint: str, epoch: int or null, metrics: {name: float} (with "loss")."""
    EXPORTED: Final = "exported"
    """path: where the SavedModel is."""
    NOTICE: Final = "notice"
    """message: one sentence the user should read."""
    FAILED: Final = "failed"
    """message: one sentence; traceback: the user's own frames, or ""; exit_code: int."""
    RELEASED: Final = "released"
    """By the chief: tasks, unreachable: lists of pod names. By another task: outcome: str."""
    DONE: Final = "done"
    """The task is about to leave with DONE."""


@dataclass(frozen=True)
class Record:
    """One line of progress: `{"tf-launcher": 1, "event": ..., "task": ..., "time": ..., ...}`.

    `time` is seconds since the epoch, by the task's own clock. Any other line on standard output is
    the program's own and is passed on as it is.
    """

    event: str
    task: str
    time: float
    fields: Mapping[str, Any]

    def line(self) -> str:
        """Without the line end. NaN and infinities are written as JSON strings, which JSON can hold."""
        head = {"tf-launcher": 1, "event": self.event, "task": self.task, "time": round(self.time, 3)}
        return json.dumps({**head, **_finite(self.fields)}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def parse(cls, line: str) -> Record | None:
        """None for a line that is not a record."""
        if not line.startswith('{"tf-launcher":'):
            return None
        try:
            document = json.loads(line)
            document.pop("tf-launcher")
            return cls(
                event=document.pop("event"),
                task=document.pop("task"),
                time=float(document.pop("time")),
                fields=document,
            )
        except (ValueError, KeyError, TypeError):
            return None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def emit(event: str, task: str, **values: Any) -> None:
    """Prints a record at once: a pipe is block-buffered, and a record is read while it is news."""
    print(Record(event, task, time.time(), values).line(), flush=True)
