"""Several requests at the same time."""

from __future__ import annotations

import signal
import threading
from functools import partial

import pytest

from launcher.backends.kubernetes.api_server.parallel import AT_A_TIME, together


def test_an_interruption_waits_for_what_has_begun_and_begins_nothing() -> None:
    begun: list[int] = []
    ended: list[int] = []

    def call(number: int) -> None:
        begun.append(number)
        if number == AT_A_TIME - 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        threading.Event().wait(0.5)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        together([partial(call, number) for number in range(10 * AT_A_TIME)])
    assert (sorted(begun), sorted(ended)) == (list(range(AT_A_TIME)),) * 2
    assert together([partial(int, number) for number in range(9)]) == list(range(9))
