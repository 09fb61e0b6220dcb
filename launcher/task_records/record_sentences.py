"""What a record says, as a sentence: one line, without colours. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from launcher.lists_and_counts import counted
from launcher.status import RunStatus
from worker.contract.records import (
    Checkpoint,
    Evaluation,
    Event,
    GpuUse,
    MembershipRecord,
    Predicted,
    Predicting,
    Progress,
    Released,
    Spent,
    Training,
    Waiting,
)

_MOST_REASONS: Final = 4


def waiting(waiting: Waiting) -> str:
    """Returns `waits for mnist-ps-0 (3 s of at most 900 s): connection refused`."""
    if not waiting.tasks:
        return f"all tasks connected (after {waiting.seconds:.0f} s)"
    waited = f"{waiting.seconds:.0f} s of at most {waiting.deadline} s"
    text = f"waits for {_names(waiting.tasks)} ({waited})"
    if len(waiting.reasons) == 1:
        return f"{text}: {next(iter(waiting.reasons))}"
    named = [f"{_names(tasks)}: {reason}" for reason, tasks in waiting.reasons.items()]
    return "; ".join([text, *named[:_MOST_REASONS]])


def gpu_use(measured: GpuUse) -> str:
    """Returns `GPUs: in use 87 %, 91 %; memory 40,213 of 81,559 MiB, 39,871 of 81,559 MiB`."""
    pairs = zip(measured.memory, measured.total, strict=False)
    parts = {
        "in use": ", ".join(f"{use} %" for use in measured.use),
        "memory": ", ".join(f"{used:,} of {total:,} MiB" for used, total in pairs),
    }
    return f"GPUs: {'; '.join(f'{name} {text}' for name, text in parts.items() if text)}"


def spent(spent: Spent) -> str:
    """Returns `time of 120 steps: input 8.4 s, computing 1.2 s, peers 0.3 s, saving 0.0 s`."""
    parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in spent.seconds.items())
    held = f"; held up by the limit on CPU for {spent.throttled:.1f} s" if spent.throttled else ""
    return f"time of {spent.steps:,} steps: {parts}{held}"


def _names(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")


def training(training: Training) -> str:
    """Returns `trains 3 epochs of 100 steps; 1 done before`."""
    steps, done = training.steps_per_epoch, training.initial_epoch
    text = f"trains {training.epochs} epochs" + (f" of {steps} steps" if steps is not None else "")
    return f"{text}; {done} done before" if done else text


def checkpoint(checkpoint: Checkpoint) -> str:
    """Returns `newest checkpoint: step 340 of epoch 2`; where newer ones fail, since when and why."""
    step = f"step {checkpoint.steps:,} of epoch {checkpoint.epochs + 1}"
    saved = step if checkpoint.steps else f"epoch {checkpoint.epochs}"
    text = f"newest checkpoint: {saved if checkpoint.taken else 'none'}"
    if checkpoint.copied_every:
        text += f"; a copy in memory every {checkpoint.copied_every:.0f} s"
    if not checkpoint.problem:
        return text
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(checkpoint.failing_since))
    return f"nothing is saved since {since}: {checkpoint.problem}; {text}"


def position(progress: Progress) -> str:
    """Returns the training's position: `epoch 2/3, step 50/100`."""
    step = f"step {progress.step}" + (f"/{progress.steps}" if progress.steps is not None else "")
    return f"epoch {progress.epoch}/{progress.epochs}, {step}"


def measures(progress: Progress) -> str:
    """Returns the values of a progress record: `accuracy 0.8123, loss 0.5311, 412 steps/s, lr 0.001`; the
    learning rate is that of an epoch's end.
    """
    values = dict(progress.metrics)
    if progress.loss is not None:
        values.setdefault("loss", progress.loss)
    parts = [metrics(values)] if values else []
    parts.append(f"{_rate(progress.steps_per_second)} steps/s")
    if progress.learning_rate is not None:
        parts.append(f"lr {progress.learning_rate:.4g}")
    return ", ".join(parts)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else _number(value, 2)


def metrics(values: Mapping[str, float]) -> str:
    """Returns `accuracy 0.8423, loss 0.4312`, in one line; the loss comes last."""
    ordered = sorted(values, key=lambda name: name == "loss")
    return ", ".join(f"{' '.join(name.split())} {_number(values[name], 4)}" for name in ordered)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3e}"


def progress(progress: Progress) -> str:
    """Returns `epoch 2/3, step 50/100: accuracy 0.8123, loss 0.5311, 412 steps/s`."""
    return f"{position(progress)}: {measures(progress)}"


def evaluation(evaluation: Evaluation) -> str:
    """Returns `evaluation after epoch 2: accuracy 0.8423, loss 0.4312`."""
    epoch = evaluation.epoch
    after = f"after epoch {epoch}" if epoch is not None else evaluation.checkpoint
    return f"evaluation {after}: {metrics(evaluation.metrics)}"


def predicting(predicting: Predicting) -> str:
    """Returns `predicted 1,200 examples, 340 examples/s`."""
    return f"predicted {predicting.examples:,} examples, {_rate(predicting.examples_per_second)} examples/s"


def predicted(status: RunStatus) -> str:
    """Returns the progress of a prediction, over all tasks: `predicted 1,200 examples, 340 examples/s`, or
    "".
    """
    newest = [
        records[Event.PREDICTING].content
        for records in status.records.values()
        if Event.PREDICTING in records
    ]
    parts = [content for content in newest if isinstance(content, Predicting)]
    if not parts:
        return ""
    rate = sum(part.examples_per_second for part in parts)
    return predicting(Predicting(sum(part.examples for part in parts), rate))


def predictions(predicted: Predicted) -> str:
    """Returns where the predictions are: `/model/predictions/run (1,200 examples in 12 files)`."""
    files = f"{predicted.parts:,} file" + ("" if predicted.parts == 1 else "s")
    return f"{predicted.path} ({predicted.examples:,} examples in {files})"


def membership(record: MembershipRecord) -> str:
    """Returns `trains with 3 workers: worker 2 joined (its port answers)`."""
    changes = [
        f"worker{'' if len(numbers) == 1 else 's'} {_names([str(number) for number in numbers])} {verb}"
        for numbers, verb in ((record.joined, "joined"), (record.left, "left"))
        if numbers
    ]
    text = f"trains with {counted(len(record.workers), 'worker')}"
    text += f": {', '.join(changes)}" if changes else ""
    return f"{text} ({record.reason})" if record.reason else text


def released(released: Released) -> str:
    """Returns `shut down 3 tasks; could not reach mnist-ps-0`."""
    unreachable = released.unreachable
    text = f"shut down {len(released.tasks)} tasks"
    return text + (f"; could not reach {_names(unreachable)}" if unreachable else "")
