"""Settings that TensorFlow takes only before its first operation. A script's come later: the strategy is made
before the script is run, so that the variables of the script are the strategy's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import wraps
from operator import attrgetter
from typing import Any

import tensorflow as tf

from worker.tf_compat.replaced_methods import replaced

_DEVICES = "a task has the devices of its resources and of spec.strategyOptions"
_GROWTH = "env: [{name: TF_FORCE_GPU_ALLOW_GROWTH, value: 'true'}] does the same"
_THREADS = "env: [{{name: TF_NUM_{}_THREADS, value: '...'}}] does the same"
_INSTEAD = {
    "tf.config.threading.set_intra_op_parallelism_threads": _THREADS.format("INTRAOP"),
    "tf.config.threading.set_inter_op_parallelism_threads": _THREADS.format("INTEROP"),
    "tf.config.set_visible_devices": _DEVICES,
    "tf.config.set_logical_device_configuration": _DEVICES,
    "tf.config.experimental.set_memory_growth": _GROWTH,
    "tf.config.experimental.set_visible_devices": _DEVICES,
    "tf.config.experimental.set_virtual_device_configuration": _DEVICES,
}
_TOO_LATE = "cannot be modified after"
"""What TensorFlow 2.21 says of each of them."""


@contextlib.contextmanager
def passed_over(notice: Callable[[str], None]) -> Iterator[None]:
    """Has the block go on where it sets one of these too late. `notice` gets what does the same."""
    noticed: set[str] = set()

    def tell_once(words: str) -> None:
        if words not in noticed:
            noticed.add(words)
            notice(words)

    with contextlib.ExitStack() as stack:
        for name, instead in _INSTEAD.items():
            path, _, last = name.removeprefix("tf.").rpartition(".")
            owner = attrgetter(path)(tf)
            words = f"{name}() has no effect in a script: {instead}"
            call = _passing_over(getattr(owner, last), words, tell_once)
            stack.enter_context(replaced(owner, **{last: call}))
        yield


def _passing_over(
    call: Callable[..., None], words: str, notice: Callable[[str], None]
) -> Callable[..., None]:
    @wraps(call)
    def called(*arguments: Any, **named: Any) -> None:
        try:
            call(*arguments, **named)
        except RuntimeError as error:
            if _TOO_LATE not in str(error):
                raise
            notice(words)

    return called
