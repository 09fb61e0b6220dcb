"""What the launcher and the worker runtime agree on, and nothing else.

Standard library only: the launcher imports this module, and the launcher never imports TensorFlow.

- `ExitCode`: what a task says by ending. The manifests' podFailurePolicy is made of these.
- `Env`: the environment variables that the manifests set and the runtime reads.
- `RunConfig`: the document behind `Env.CONFIG`, one for all tasks of a run.
- `Record`: a line of progress on standard output.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Any, Final

PORT: Final = 2222
"""Every task's gRPC port, TensorFlow's customary one."""


GRACE_SECONDS: Final = 30
"""From SIGTERM to SIGKILL: Kubernetes' own default of a pod's terminationGracePeriodSeconds."""


GRPC_FAIL_FAST: Final = ("GRPC_FAIL_FAST", "use_caller")
"""A variable of TensorFlow's servers and clients, and its value: a task that is lost is an error at once, and
one that is not up yet is waited for. With `false` a chief hangs on a lost ps, with `true` it fails early."""


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

    LOCAL: Final = "TF_LAUNCHER_LOCAL"
    """Only where tasks are processes of this machine, and what they ask for has no meaning: whose it is."""

    RESERVED: Final = frozenset({TF_CONFIG, TASK_INDEX, ROLE, CONFIG, CLUSTER_FILE, TASK_DIR, SOURCE})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run as every task sees it. JSON names are the fields' own.

    `replicas` counts the tasks of each role: `{"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}`.
    `chief_address` is `host:port` of the task whose end is the run's end, None in a one-task run.
    `model_dir` is a path or a URL that `tf.io.gfile` opens. Durations are in seconds.
    `mode` is Train, Evaluate or Predict; the latter two read `checkpoint`, as `ckpt-3`, None for the newest.
    `strategy_options` and `evaluation` are the spec's, without what was left out, `keras` is 2 or 3.
    `run_id` tells one submission of a name from the next; of what `launcher render` prints it is a digest,
    so that the same file is the same run. `gpus` says what GPUs the pods of a role ask for, such as
    "nvidia.com/gpu: 8", and `allow_cpu` which roles may do without. `grace_seconds` are those from SIGTERM to
    SIGKILL, of each role whose pods do not have GRACE_SECONDS.
    """

    run: str
    run_id: str = ""
    mode: str = "Train"
    checkpoint: str | None = None
    strategy: str
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    entrypoint: str | None = None
    keras: int = 2
    parameters: Mapping[str, Any] = field(default_factory=dict)
    model_dir: str | None = None
    replicas: Mapping[str, int]
    gpus: Mapping[str, str] = field(default_factory=dict)
    allow_cpu: Collection[str] = ()
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
    DEVICES: Final = "devices"
    """What the task computes with. replicas: int that take steps, in tasks: int, as far as the task knows (a
    server knows itself, an evaluator has none); devices: this task's own, a list of {type: "GPU", "CPU" or
    "TPU", name: str, count: int}; tensorflow: its version; lacking: str, the GPUs that it asked for and does
    not see, or ""."""
    READY: Final = "ready"
    """A worker or ps: its server is up. An evaluator: it looks for checkpoints."""
    TRAINING: Final = "training"
    """Begins. epochs, steps_per_epoch (null: unknown), initial_epoch: int done before this attempt."""
    PROGRESS: Final = "progress"
    """epoch (from 1), epochs, step (in the epoch), steps (of the epoch, null: unknown),
    steps_per_second, loss (null: not known yet), metrics: {name: float}, epoch_end: bool."""
    EVALUATION: Final = "evaluation"
    """checkpoint: str, epoch: int or null, metrics: {name: float} (with "loss")."""
    LOADED: Final = "loaded"
    """To evaluate, or to predict with it. checkpoint: str, path: where it is."""
    PREDICTING: Final = "predicting"
    """examples: int of the task's share that are done, those of earlier attempts too; examples_per_second."""
    PREDICTED: Final = "predicted"
    """All are written. path: the directory, examples: int, parts: int, how many files."""
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
        """None for a line that is not a record, whatever is in it: anyone's program may print one that is
        alike. A record has the fields that `Event` names, of the types named there. Events and fields of a
        later version pass.
        """
        if not line.startswith('{"tf-launcher":'):
            return None
        try:
            document = json.loads(line, parse_int=_parse_integer, parse_constant=_refuse)
            head = {name: document.pop(name) for name in ("tf-launcher", "event", "task", "time")}
            right = (
                _is_sound(document)
                and all(_is_sound(value) for value in head.values())
                and all(_is_text(head[name]) for name in ("event", "task"))
                and _is_count(head["tf-launcher"])
                and _is_finite(head["time"])
                and 0 <= head["time"] < _END_OF_TIME
                and any(_has(document, fields) for fields in _FIELDS.get(head["event"], ({},)))
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not right:
            return None
        return cls(event=head["event"], task=head["task"], time=float(head["time"]), fields=document)


_END_OF_TIME: Final = 1e11
"""Seconds since the epoch, in the year 5138: beyond it are numbers that no calendar takes."""

_DEEPEST: Final = 16
"""Levels of lists and mappings in a record's field."""

_LONGEST_INTEGER: Final = 20
"""Digits of 2**64, with a sign."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def _parse_integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError("a number of more than 64 bits")
    return int(digits)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _is_sound(value: Any, levels: int = 0) -> bool:
    """Whether it can be printed and computed with: no half of a surrogate pair, no infinity (1e999)."""
    if isinstance(value, str):
        return _SURROGATE.search(value) is None
    if isinstance(value, float):
        return _is_finite(value)
    if isinstance(value, dict):
        inner: list[Any] = [*value, *value.values()]
    else:
        inner = value if isinstance(value, list) else []
    return levels <= _DEEPEST and all(_is_sound(each, levels + 1) for each in inner)


_ABSENT: Final = object()


def _is_absent(value: Any) -> bool:
    return value is _ABSENT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    """A whole number from 0; `int` has no bound, and neither has what would be printed of it."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_count_or_null(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_number(value: Any) -> bool:
    """As `_finite` writes it."""
    return _is_finite(value) or value in ("nan", "inf", "-inf")


def _is_number_or_null(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_number(each) for each in value.values())


def _is_devices(value: Any) -> bool:
    kinds: dict[str, Callable[[Any], bool]] = {"type": _is_text, "name": _is_text, "count": _is_count}
    return isinstance(value, list) and all(isinstance(each, dict) and _has(each, kinds) for each in value)


def _has(document: Mapping[str, Any], fields: Mapping[str, Callable[[Any], bool]]) -> bool:
    return all(is_right(document.get(name, _ABSENT)) for name, is_right in fields.items())


_FIELDS: Final[Mapping[str, Sequence[Mapping[str, Callable[[Any], bool]]]]] = {
    Event.WAITING: [{"tasks": _is_texts, "seconds": _is_finite, "deadline": _is_finite}],
    Event.DEVICES: [
        {
            "replicas": _is_count,
            "tasks": _is_count,
            "devices": _is_devices,
            "tensorflow": _is_text,
            "lacking": _is_text,
        }
    ],
    Event.TRAINING: [
        {"epochs": _is_count, "steps_per_epoch": _is_count_or_null, "initial_epoch": _is_count},
    ],
    Event.PROGRESS: [
        {
            "epoch": _is_count,
            "epochs": _is_count,
            "step": _is_count,
            "steps": _is_count_or_null,
            "steps_per_second": _is_number,
            "loss": _is_number_or_null,
            "metrics": _is_numbers,
            "epoch_end": _is_flag,
        }
    ],
    Event.EVALUATION: [{"checkpoint": _is_text, "epoch": _is_count_or_null, "metrics": _is_numbers}],
    Event.LOADED: [{"checkpoint": _is_text, "path": _is_text}],
    Event.PREDICTING: [{"examples": _is_count, "examples_per_second": _is_number}],
    Event.PREDICTED: [{"path": _is_text, "examples": _is_count, "parts": _is_count}],
    Event.EXPORTED: [{"path": _is_text}],
    Event.NOTICE: [{"message": _is_text}],
    Event.FAILED: [{"message": _is_text, "traceback": _is_text, "exit_code": _is_count}],
    Event.RELEASED: [
        {"tasks": _is_texts, "unreachable": _is_texts},
        {"tasks": _is_absent, "outcome": _is_text},
    ],
}
"""Of each event, the fields that a record has, as one of these says."""


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
