"""What layers and steps keep of the batches in variables that are not trained, such as a moving mean.

Each replica computes it from its own examples; the variable gets the mean of what the replicas assign. So a
mean over the examples is weighed by the replica's part of the batch, and a sum over them is multiplied by
the number of replicas.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.input import replica_shares
from worker.steps.reductions import is_sum, reductions
from worker.tf_compat import strategies

_mixed: dict[tuple[str, str], Any] = {}
"""By name and place, the lines of sums that were assigned together with something else; None where they were
returned already.
"""


def average(strategy: Any) -> None:
    """Has the statistics that are made under `strategy` from now on be those of the global batch."""
    strategies.average_statistics(strategy, _of_replica)


def mixed() -> list[tuple[str, Any]]:
    """Returns the names of variables whose new value is computed from a sum over a replica's examples and
    from something else, which no factor brings to that of one process, each with the lines of the sum. They
    are returned once.
    """
    noted = [(name, frames) for (name, _), frames in _mixed.items() if frames is not None]
    _mixed.update(dict.fromkeys(_mixed))
    return noted


def _of_replica(variable: Any, value: Any) -> Any:
    """Returns what a replica has to assign, or to add, to `variable` in the place of `value`."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    share = replica_shares.current()
    sums = [each for each in reductions(value) if each.is_sum()]
    if sums and is_sum(value) and not _reads_variables(value):
        return value * replicas
    if sums:
        name, frames = variable.name.partition(":")[0], sums[0].frames
        _mixed.setdefault((name, str(frames[-1:])), frames)
    return value if share is None else value * tf.cast(share.part * replicas, value.dtype)


def _reads_variables(value: Any) -> bool:
    """Returns whether `value` is computed from variables otherwise than by a reduction."""
    seen, ahead = set(), [value.op]
    while ahead:
        operation = ahead.pop()
        if operation.name in seen or operation.type in ("Sum", "Mean"):
            continue
        if operation.type == "ReadVariableOp":
            return True
        seen.add(operation.name)
        ahead.extend(each.op for each in operation.inputs)
    return False
