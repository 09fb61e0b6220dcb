"""The number of examples in a batch, as far as the dataset itself tells."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.failures import program_error
from worker.tf_compat import graphs


def check(loop: Loop, dataset: Any) -> None:
    """Checks that the training's batches have the size that the program was asked for.

    A loss of the program's own is divided by the size that was asked for. With another size every gradient
    would be too small, so the check raises Failure. Model.fit takes the mean over the actual batch, so the
    check emits a notice.

    It reads no batch. The first batch of a small dataset may rightly be smaller, and a shuffle buffer may
    take minutes to fill.
    """
    asked, given = loop.parameters.global_batch_size, batch_size(dataset)
    if given is None or given == asked:
        return
    what = f"{loop.program.entrypoint}: train_dataset({asked}) returned batches of {given}, not of {asked}"
    advice = f"batch by the batch_size that it is given, or set {loop.parameters.size_for(given)}"
    if graphs.batch_size(dataset) is None:
        advice = f"if these are single examples, end it with .batch(batch_size); otherwise {advice}"
    for method in ("train_step", "loss"):
        if loop.program.has(method):
            raise program_error(f"{what}, by which what {method}() gives is divided; {advice}")
    loop.notice(f"{what}; to have no more of this notice, {advice}")


def batch_size(dataset: Any) -> int | None:
    """Returns the size of every full batch of `dataset`; None where it does not tell, as after a `map`
    that looks words up in a table.
    """
    for spec in tf.nest.flatten(dataset.element_spec):
        shape = getattr(spec, "shape", None)
        if shape is not None and shape.rank and shape[0] is not None:
            return int(shape[0])
    return graphs.batch_size(dataset)


def of_size(element: Any, size: int) -> Any:
    """Returns the element_spec `element` with batches of `size`."""

    def fixed(spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0):
            return spec
        return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)

    return tf.nest.map_structure(fixed, element)
