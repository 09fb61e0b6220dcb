"""What a task's supervisor knows of its task, as metrics for Prometheus, in the format of OpenMetrics or in
the older one of text.

https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from worker.contract.exit_codes import ExitCode
from worker.contract.records import (
    PARTS,
    Checkpoint,
    Content,
    Devices,
    Evaluation,
    MembershipRecord,
    Progress,
    Ready,
    Restarted,
    content_of,
)
from worker.process import memory, processors

_PREFIX = "tf_launcher_"
_LOST_TASK, _STOPPED = "lost task", "stopped with the others"
_C = TypeVar("_C", bound=Content)


class Family(NamedTuple):
    """A metric, with a value for each set of labels. Of a counter, the samples' names end with `_total`."""

    name: str
    about: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    is_counter: bool = False


class Metrics:
    """The metrics of one task, each with these `labels`. One thread tells what it knows, another reads."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.process: int | None = None
        """The training process, None while there is none."""
        self.sending: Callable[[], Mapping[str, float]] = dict
        """Returns the seconds for which data were waiting to be sent, by the task that they are for."""
        self.workers: int | None = None
        """How many answer their coordinator; None where this task is none."""
        self._labels = labels
        self._contents: dict[type[Any], Any] = {}
        self._spent: Mapping[str, float] = {}
        self._restarts = Counter({_LOST_TASK: 0, _STOPPED: 0, signal.SIGKILL.name: 0})
        """Those that are usual are there from the start: where a counter appears with 1, Prometheus sees no
        increase.
        """

    def hear(self, content: Content | None) -> None:
        """The task has printed a record."""
        before = self._latest(Progress)
        if isinstance(content, Progress) and before is not None:
            content = _with_last_values(content, before)
        self._contents[type(content)] = content
        if isinstance(content, Restarted):
            self._restarts[_cause(content.exit_code)] += 1

    def read(self, record: dict[str, Any]) -> None:
        """The training process has printed a record."""
        with contextlib.suppress(ValueError):
            self.hear(content_of(record["event"], record))

    def spend(self, times: Mapping[str, float]) -> None:
        """The training process has said where the time of its steps went so far: see `StepTimes`."""
        self._spent = times

    def attend(self, workers: int) -> None:
        """So many workers answer their coordinator."""
        self.workers = workers

    def text(self, *, is_open: bool) -> str:
        """Returns the document, in the format of OpenMetrics if `is_open`."""
        lines = []
        for family in self.families():
            full = f"{family.name}_total" if family.is_counter else family.name
            name = family.name if is_open else full
            lines.append(f"# HELP {name} {family.about}")
            lines.append(f"# TYPE {name} {'counter' if family.is_counter else 'gauge'}")
            for labels, value in family.samples:
                pairs = (f'{key}="{_escaped(text)}"' for key, text in {**self._labels, **labels}.items())
                lines.append(f"{full}{{{','.join(pairs)}}} {_number(value)}")
        return "\n".join([*lines, "# EOF", ""] if is_open else [*lines, ""])

    def families(self) -> Iterator[Family]:
        """Yields those that have a value now."""
        for each in (*self._of_steps(), *self._of_training(), *self._of_tasks(), *self._of_pod()):
            if each.samples:
                yield each

    def _of_steps(self) -> Iterator[Family]:
        spent = self._spent
        yield _total("steps", "Steps that the training process has taken since its start", spent.get("steps"))
        about = "Examples of these steps in this task, a smaller last batch counted as a whole one"
        yield _total("examples", about, spent.get("examples"))
        about = "Seconds of these steps by what this task did: it waited for input or peers, computed, saved"
        parts = [({"part": part}, spent[part]) for part in PARTS if part in spent]
        yield Family(f"{_PREFIX}step_seconds", about, parts, is_counter=True)
        about = "Seconds for which data of this task were waiting on the connection to another task"
        waited = [({"to": name}, seconds) for name, seconds in self.sending().items()]
        yield Family(f"{_PREFIX}sending_seconds", about, waited, is_counter=True)

    def _of_training(self) -> Iterator[Family]:
        progress = self._latest(Progress)
        if progress is not None:
            rate = None if self.process is None else progress.steps_per_second
            yield _one("steps_per_second", "Steps of the run in a second", rate)
            yield _one("epoch", "The epoch, from 1", progress.epoch)
            yield _one("epochs", "Epochs of the whole training", progress.epochs)
            yield _one("epoch_step", "Steps of the epoch that are done", progress.step)
            yield _one("epoch_steps", "Steps of the epoch", progress.steps)
            yield _one("loss", "The loss, of the epoch so far or of a step", progress.loss)
            yield _one("learning_rate", "The optimizer's, at the end of an epoch", progress.learning_rate)
            yield _by_name("metric", "A metric of the epoch so far, or of the one before", progress.metrics)
        scored = self._latest(Evaluation)
        if scored is not None:
            yield _one("evaluation_epoch", "The epoch that was scored last", scored.epoch)
            yield _by_name("evaluation_metric", "A metric of that evaluation", scored.metrics)

    def _of_tasks(self) -> Iterator[Family]:
        members, devices = self._latest(MembershipRecord), self._latest(Devices)
        workers = self.workers
        if workers is None and devices is not None and self._latest(Ready) is None:  # no server
            workers = devices.tasks or None
        if members is not None:
            workers = len(members.workers)
            yield _one("generation", "Memberships of an elastic collective before", members.generation)
        yield _one("workers", "Tasks that take steps now, as far as this task knows", workers)
        yield _one("training_process", "1 while the training process lives", float(self.process is not None))
        about = "Training processes that were started again in this pod, by what ended the one before"
        causes = [({"cause": cause}, count) for cause, count in self._restarts.items()]
        yield Family(f"{_PREFIX}restarts", about, causes, is_counter=True)

    def _of_pod(self) -> Iterator[Family]:
        saved = self._latest(Checkpoint)
        if saved is not None:
            age, seconds = (time.time() - saved.taken, saved.write_seconds) if saved.taken else (None, None)
            yield _one("checkpoint_age_seconds", "Age of the newest checkpoint", age)
            yield _one("checkpoint_write_seconds", "Seconds that its writing took", seconds)
            failing = float(bool(saved.problem))
            yield _one("checkpoint_failing", "1 while no checkpoint can be written", failing)
        container, process = memory.of_container(), self.process
        if container is not None:
            yield _one("memory_bytes", "Memory that all processes of the container use", container[0])
            yield _one("memory_limit_bytes", "The container's limit of memory", container[1])
        elif process is not None:
            yield _one("memory_bytes", "Memory that the training process uses", memory.of_process(process))
        about = "Seconds for which the limit on CPU has held the container up"
        yield _total("cpu_throttled_seconds", about, processors.throttled())

    def _latest(self, kind: type[_C]) -> _C | None:
        content: _C | None = self._contents.get(kind)
        return content


def _with_last_values(progress: Progress, before: Progress) -> Progress:
    """Returns `progress`, with what is not known of each moment, as a collective's metrics within an
    epoch.
    """
    loss = before.loss if progress.loss is None else progress.loss
    rate = before.learning_rate if progress.learning_rate is None else progress.learning_rate
    return Progress(*progress[:5], loss, progress.metrics or before.metrics, progress.epoch_end, rate)


def _one(name: str, about: str, value: float | None, *, is_counter: bool = False) -> Family:
    return Family(_PREFIX + name, about, [] if value is None else [({}, value)], is_counter)


def _total(name: str, about: str, value: float | None) -> Family:
    return _one(name, about, value, is_counter=True)


def _by_name(name: str, about: str, values: Mapping[str, float]) -> Family:
    return Family(_PREFIX + name, about, [({"name": key}, value) for key, value in values.items()])


def _cause(exit_code: int) -> str:
    """Returns what ended a training process that left with this code, and was started again."""
    if exit_code == ExitCode.PREEMPTED:
        return _STOPPED
    return _LOST_TASK if exit_code == ExitCode.RETRYABLE else signal.Signals(exit_code - 128).name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
