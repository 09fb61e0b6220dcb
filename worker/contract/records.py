"""A `Record` is a line of progress on standard output; each event has a type that says its fields."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, Union

from worker.contract.json_values import (
    checked,
    count,
    counts,
    each_of,
    finite,
    flag,
    names,
    number,
    numbers,
    text,
    texts,
)


class Event:
    """The events of a `Record`. The type of the same name has the event's fields."""

    DOING: Final = "doing"
    WAITING: Final = "waiting"
    PRECHECKED: Final = "prechecked"
    DEVICES: Final = "devices"
    READY: Final = "ready"
    MEMBERSHIP: Final = "membership"
    TRAINING: Final = "training"
    PROGRESS: Final = "progress"
    CHECKPOINT: Final = "checkpoint"
    EVALUATION: Final = "evaluation"
    LOADED: Final = "loaded"
    PREDICTING: Final = "predicting"
    PREDICTED: Final = "predicted"
    EXPORTED: Final = "exported"
    GPU_USE: Final = "gpu-use"
    SPENT: Final = "spent"
    NOTICE: Final = "notice"
    FAILED: Final = "failed"
    RESTARTED: Final = "restarted"
    RELEASED: Final = "released"
    DONE: Final = "done"


PARTS: Final = ("input", "computing", "peers", "saving")
"""What a task does while it trains: it waits for its input, computes, waits for the other tasks, or saves."""

_T = TypeVar("_T")

Seconds = float
"""Finite; an int is valid too."""

Number = float
"""A value that a model computes, which may be NaN or infinite. A line has those as text: "nan", "inf",
"-inf".
"""


@dataclass(frozen=True)
class Device:  # no NamedTuple: those have a method `count`
    """`count` devices of a `type` ("GPU", "CPU" or "TPU") and a model, such as "NVIDIA A100"."""

    type: str
    name: str
    count: int


def _device(value: Any) -> Device:
    get = checked(value, isinstance(value, Mapping)).get
    return Device(text(get("type")), text(get("name")), count(get("count")))


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "str": text,
    "bool": flag,
    "int": count,
    "int | None": lambda value: None if value is None else count(value),
    "Seconds": finite,
    "Number": number,
    "Number | None": lambda value: None if value is None else number(value),
    "Mapping[str, Number]": numbers,
    "Sequence[int]": counts,
    "Sequence[str]": texts,
    "Mapping[str, Sequence[str]]": names,
    "Sequence[Device]": lambda value: tuple(map(_device, each_of(value))),
}
"""The parser of a field's value on a line, by the field's annotation. Each raises ValueError."""

EVENTS: Final[dict[type[Any], str]] = {}
"""The event of each type of content."""

_KINDS: Final[dict[str, type[Any]]] = {}
_FIELDS: Final[dict[type[Any], Mapping[str, Callable[[Any], Any]]]] = {}


def _record(event: str) -> Callable[[type[_T]], type[_T]]:
    """Declares the content of an event. A field with a default is one that earlier versions do not write."""

    def declare(kind: type[_T]) -> type[_T]:
        EVENTS[kind] = event
        _KINDS.setdefault(event, kind)
        _FIELDS[kind] = {name: _READERS[each.__forward_arg__] for name, each in kind.__annotations__.items()}
        return kind

    return declare


@_record(Event.DOING)
class Doing(NamedTuple):
    """What the task does before the first step or after the last, such as `importing TensorFlow`. It lasts
    until the task's next record.
    """

    activity: str


@_record(Event.WAITING)
class Waiting(NamedTuple):
    """The task has waited `seconds`, of at most `deadline`, for `tasks` (pod names) to answer. All answer if
    `tasks` is empty. `reasons` maps why they do not answer to the first pods; earlier versions leave it out.
    """

    tasks: Sequence[str]
    seconds: Seconds
    deadline: Seconds
    reasons: Mapping[str, Sequence[str]] = {}


@_record(Event.PRECHECKED)
class Prechecked(NamedTuple):
    """What the task has measured of its node in `seconds`, before it trains; what it could not measure is
    left out. `compute` is GFLOP/s by device: "CPU", or "GPU 0" and so on. `storage` is MB/s by "disk write",
    "disk read", "model directory write" and "model directory read". To each of a few other tasks (pod names)
    it has `bandwidth` in MB/s and `latency` in milliseconds, there and back.
    """

    seconds: Seconds
    compute: Mapping[str, Number]
    storage: Mapping[str, Number]
    bandwidth: Mapping[str, Number]
    latency: Mapping[str, Number]


@_record(Event.DEVICES)
class Devices(NamedTuple):
    """The devices that the task uses. `replicas` take the steps, in `tasks` tasks, as far as the task knows:
    a server knows only itself, and an evaluator has no replicas. `devices` are this task's own, `tensorflow`
    is a version. `lacking` names the GPUs that the task asked for and does not have, or is "". `runtime` says
    which version this runtime has and where it comes from; it is "" in a run of an earlier version.
    """

    replicas: int
    tasks: int
    devices: Sequence[Device]
    tensorflow: str
    lacking: str
    runtime: str = ""


@_record(Event.READY)
class Ready(NamedTuple):
    """A worker's or ps's server is up; an evaluator looks for checkpoints."""


@_record(Event.MEMBERSHIP)
class MembershipRecord(NamedTuple):
    """The primary task says which workers of an elastic run take part from now on. `workers` are their
    numbers, ascending; `joined` and `left` are those that came and went since the record before. `reason` is
    a short text, such as `worker 2 answers`. `generation` counts the memberships of a collective from 0; it
    is None under a coordinator, which has no generations.
    """

    workers: Sequence[int]
    joined: Sequence[int]
    left: Sequence[int]
    reason: str
    generation: int | None


@_record(Event.TRAINING)
class Training(NamedTuple):
    """The training begins. `steps_per_epoch` is None if unknown. Earlier attempts did the first
    `initial_epoch` epochs.
    """

    epochs: int
    steps_per_epoch: int | None
    initial_epoch: int


@_record(Event.PROGRESS)
class Progress(NamedTuple):
    """`step` of the `steps` (None: unknown) of `epoch` is done; epochs count from 1. `loss` is None if it is
    not known yet, and is not among the `metrics`. At an `epoch_end` the values are those of the epoch, and
    `learning_rate` is the optimizer's after its last step; it is None within an epoch, of an optimizer that
    has none, and in records of earlier versions.
    """

    epoch: int
    epochs: int
    step: int
    steps: int | None
    steps_per_second: Number
    loss: Number | None
    metrics: Mapping[str, Number]
    epoch_end: bool
    learning_rate: Number | None = None

    @property
    def values(self) -> Mapping[str, Number]:
        """Returns the metrics with the loss, where that is known."""
        return {**self.metrics, **({} if self.loss is None else {"loss": self.loss})}


@_record(Event.CHECKPOINT)
class Checkpoint(NamedTuple):
    """The newest checkpoint: it has `epochs` epochs and `steps` steps of the next, as of the time `taken`, in
    seconds since the epoch; 0 where there is none. `every_seconds` passes to the next one, 0 where steps
    decide. Where newer ones cannot be written, `problem` is the reason, and `failing_since` the time from
    which on. `copied_every` is the number of seconds between two copies in memory, which outlive the loss of
    one task, 0 where there are none. To write it took `write_seconds`.
    """

    epochs: int
    steps: int
    taken: Seconds
    every_seconds: Seconds
    failing_since: Seconds = 0.0
    problem: str = ""
    copied_every: Seconds = 0.0
    write_seconds: Seconds = 0.0


@_record(Event.EVALUATION)
class Evaluation(NamedTuple):
    """The scores of a checkpoint; "loss" is among the `metrics`. `epoch` is None if unknown."""

    checkpoint: str
    epoch: int | None
    metrics: Mapping[str, Number]


@_record(Event.LOADED)
class Loaded(NamedTuple):
    """A checkpoint to evaluate or to predict with; `path` is its directory."""

    checkpoint: str
    path: str


@_record(Event.PREDICTING)
class Predicting(NamedTuple):
    """Number of examples of the task's share that are done, those of earlier attempts included."""

    examples: int
    examples_per_second: Number


@_record(Event.PREDICTED)
class Predicted(NamedTuple):
    """All predictions are written, to `parts` files in the directory `path`."""

    path: str
    examples: int
    parts: int


@_record(Event.EXPORTED)
class Exported(NamedTuple):
    """The SavedModel is at `path`."""

    path: str


@_record(Event.GPU_USE)
class GpuUse(NamedTuple):
    """What nvidia-smi says of the GPUs that the task sees, a number for each; what it does not know is left
    out. `use` is in percent of the last second. `memory` of the `total` is in use by any process, in MiB.
    """

    use: Sequence[int]
    memory: Sequence[int]
    total: Sequence[int]


@_record(Event.SPENT)
class Spent(NamedTuple):
    """Where the time of the latest `steps` of this task went: `seconds` by `PARTS`. For `throttled` seconds
    of them the limit on CPU held its container up. `sending` has the tasks (pod names) for which data of this
    one were waiting on the connection, and the seconds, where they are many.
    """

    steps: int
    seconds: Mapping[str, Number]
    throttled: Seconds
    sending: Mapping[str, Number] = {}


@_record(Event.NOTICE)
class Notice(NamedTuple):
    """A sentence that the user should read."""

    message: str


@_record(Event.FAILED)
class Failed(NamedTuple):
    """The reason why the task fails, in one sentence. `traceback` has the frames of the user's own files, or
    is "".
    """

    message: str
    traceback: str
    exit_code: int


@_record(Event.RESTARTED)
class Restarted(NamedTuple):
    """The training process ended with `exit_code` and was started again in its pod, where it is the
    `restart`-th time.
    """

    exit_code: int
    restart: int


@_record(Event.RELEASED)
class Released(NamedTuple):
    """The chief has released `tasks` (pod names), and could not reach `unreachable`."""

    tasks: Sequence[str]
    unreachable: Sequence[str]


@_record(Event.RELEASED)
class WasReleased(NamedTuple):
    """The chief released this task, because the run has this `outcome`: "done" or "failed", or the reason why
    there is none. Its event is "released", too.
    """

    outcome: str


@_record(Event.DONE)
class Done(NamedTuple):
    """The task is about to leave with `ExitCode.DONE`."""


Content = Union[  # Python 3.9 has no `|` for types.
    Doing,
    Waiting,
    Prechecked,
    Devices,
    Ready,
    MembershipRecord,
    Training,
    Progress,
    Checkpoint,
    Evaluation,
    Loaded,
    Predicting,
    Predicted,
    Exported,
    GpuUse,
    Spent,
    Notice,
    Failed,
    Restarted,
    Released,
    WasReleased,
    Done,
]


@dataclass(frozen=True)
class Record:
    """One line of progress: `{"tf-launcher": 1, "event": ..., "task": ..., "time": ..., ...}`.

    `time` is seconds since the epoch, by the task's own clock. `fields` are the line's other fields;
    `content` is the same as a value of the event's type, None for an event of a later version. Raises
    ValueError where the fields are not the event's. Any other line on standard output belongs to the program
    and is passed on unchanged.
    """

    event: str
    task: str
    time: float
    fields: Mapping[str, Any]
    content: Content | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", content_of(self.event, self.fields))

    def line(self) -> str:
        """Returns the line in a log, without the line end."""
        return line_of(self.event, self.task, self.time, self.fields)

    @classmethod
    def parse(cls, line: str) -> Record | None:
        """Returns None for a line that is not a record, whatever it contains: any program may print a similar
        one. A record has the fields of its event's type. Events and fields of a later version are accepted.
        """
        if not line.startswith(_BEGIN):
            return None
        try:
            document = json.loads(line, parse_int=_parse_integer, parse_constant=_refuse)
            version, event, task, time = (document.pop(name) for name in _HEAD)
            if not all(map(_is_sound, (event, task, document))):
                return None
            count(version)
            if not 0 <= finite(time) < _END_OF_TIME:
                return None
            return cls(event=text(event), task=text(task), time=float(time), fields=document)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    @classmethod
    def split(cls, line: str) -> tuple[str, Record | None]:
        """Returns what is before the record at the end of a line, and the record: a program leaves its line
        without an end while it draws a progress bar. A line without a record is returned whole.
        """
        begin = line.rfind(_BEGIN)
        record = cls.parse(line[begin:]) if begin >= 0 else None
        return (line, None) if record is None else (line[:begin], record)


_BEGIN: Final = '{"tf-launcher":'

_HEAD: Final = ("tf-launcher", "event", "task", "time")

_END_OF_TIME: Final = 1e11
"""Seconds since the epoch, in the year 5138. Greater numbers are no valid times of a calendar."""

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
    """Returns whether the value can be printed and computed with: no half of a surrogate pair, no infinity
    (1e999).
    """
    if isinstance(value, str):
        return _SURROGATE.search(value) is None
    if isinstance(value, float):
        return abs(value) < float("inf")
    if isinstance(value, dict):
        inner: list[Any] = [*value, *value.values()]
    else:
        inner = value if isinstance(value, list) else []
    return levels <= _DEEPEST and all(_is_sound(each, levels + 1) for each in inner)


def content_of(event: str, fields: Mapping[str, Any]) -> Content | None:
    """Returns None for an event of a later version. Raises ValueError where the fields are not
    the event's.
    """
    kind = _KINDS.get(event)
    if kind is Released and "tasks" not in fields:
        kind = WasReleased
    return None if kind is None else _read(kind, fields)


def _read(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    """Raises ValueError where a field is missing or has another type. Ignores fields of later versions."""
    values = {}
    for name, read in _FIELDS[kind].items():
        if name in fields:
            values[name] = read(fields[name])
        elif name not in kind._field_defaults:
            raise ValueError(f"a record without {name}")
    return kind(**values)


def fields_of(content: Content) -> dict[str, Any]:
    """Returns the fields by name, in the order of a line. Those with a default are left out where empty."""
    kind = type(content)
    fields = zip(_FIELDS[kind], content)
    return {name: value for name, value in fields if value or name not in kind._field_defaults}


def line_of(event: str, task: str, time: float, fields: Mapping[str, Any]) -> str:
    """Returns the line without the line end. NaN and infinities become JSON strings, since JSON has no
    numbers for them.
    """
    head = {"tf-launcher": 1, "event": event, "task": task, "time": round(time, 3)}
    return json.dumps({**head, **_as_json(fields)}, separators=(",", ":"), ensure_ascii=False)


def _as_json(value: Any) -> Any:
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, Device):
        return vars(value)
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value


def emit(task: str, content: Content) -> str:
    """Prints a record and flushes: a pipe is block-buffered, and a reader needs the record at once. Returns
    the line.
    """
    line = line_of(EVENTS[type(content)], task, time.time(), fields_of(content))
    # In one piece: another thread may print at the same time.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    return line
