"""The parameter servers that a coordinator has lost."""

from __future__ import annotations

import threading

import tensorflow as tf

from worker.devices import on_server
from worker.failures import is_lost_peer, sentence
from worker.task import Task

_SECONDS = 5.0


def lost(task: Task) -> dict[str, str]:
    """Returns the ps that have no variables of this process any more, by pod name, and what TensorFlow says.
    Such a ps may answer by now: it was started again.

    An operation on each shows it, which may take a few seconds in all. A ps that does not answer is not among
    them.
    """
    messages: dict[str, str] = {}

    def ask(index: int) -> None:
        try:
            with on_server("ps", index):
                tf.timestamp().numpy()  # waits: an operation on another task returns before it is done
        except tf.errors.OpError as error:
            if is_lost_peer(error):
                messages[task.pod("ps", index)] = sentence(error)

    # In threads, because what a hung task is asked may never return.
    threads = [threading.Thread(target=ask, args=(index,), daemon=True) for index in task.cluster["ps"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS / len(threads))
    return dict(messages)
