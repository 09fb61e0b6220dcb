"""What layers and steps keep of the batches in variables that are not trained, such as a moving mean.

Each replica computes it from its own examples, and the variable gets the mean of what the replicas assign. So
what is a mean over the examples is weighed by the replica's part of the batch, and a sum over them is
multiplied by the number of replicas.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.input import replica_shares
from worker.input.batch_division import Share
from worker.steps.reductions import reductions
from worker.tf_compat import strategies

_unknown: dict[tuple[str, str], Any] = {}
"""By a variable's name and the place, the lines of a sum that could not be told from the rest of the value;
None where they were returned already.
"""


def average(strategy: Any) -> None:
    """Has the statistics that are made under `strategy` from now on be those of the global batch."""
    strategies.average_statistics(strategy, _of_replica)


def unknown() -> list[tuple[str, Any]]:
    """Returns the names of variables that are not those of one process, as their new value is computed from a
    sum over the replica's examples in another shape, each with the lines of the sum. They are returned once.
    """
    noted = [(name, frames) for (name, _), frames in _unknown.items() if frames is not None]
    _unknown.update(dict.fromkeys(_unknown))
    return noted


def _of_replica(variable: Any, value: Any) -> Any:
    """Returns what a replica has to assign, or to add, to `variable` in the place of `value`."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    share = replica_shares.current()
    if isinstance(value, tf.IndexedSlices):
        # Whole: an exchange of rows must have as many in each step of an execution (TensorFlow 2.21).
        rows = tf.scatter_nd(value.indices[:, None], _counted(value.values, share), variable.shape)
        return rows * replicas
    sums: list[Any] = []
    for term in {each.output.ref(): each for each in reductions(value) if each.is_sum()}.values():
        if term.output.shape != value.shape or term.output.dtype != value.dtype:
            name, frames = variable.name.partition(":")[0], term.frames
            _unknown.setdefault((name, str(frames[-1:])), frames)
            continue
        # The value is linear in the sum, element by element, so this is by what each is multiplied.
        sums.append(tf.gradients(value, term.output)[0] * term.output)
    rest = tf.add_n([value, *(-each for each in sums)]) if sums else value
    if share is not None:
        rest *= tf.cast(share.part * replicas, value.dtype)
    return tf.add_n([rest, *(each * replicas for each in sums)]) if sums else rest


def _counted(rows: Any, share: Share | None) -> Any:
    """Returns `rows`, one or more for each example, with zeros for the examples that do not count."""
    if share is None:
        return rows
    number = tf.shape(rows)[0]
    last = tf.where(
        number % share.rows == 0, number // share.rows * tf.cast(share.examples, tf.int32), number
    )
    return tf.where(tf.reshape(tf.range(number) < last, [-1, *[1] * (rows.shape.rank - 1)]), rows, 0)
