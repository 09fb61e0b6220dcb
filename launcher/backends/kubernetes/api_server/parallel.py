"""Several requests at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

AT_A_TIME: Final = 4
_LOOK_SECONDS: Final = 0.02
"""Interval between two looks, after an interruption, at whether what had begun has ended."""

Result = TypeVar("Result")


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all calls, which run at the same time: that takes one round trip to the server, not one
    for each.

    If some fail, the first one's exception is raised when all have ended. An interruption waits for those
    that have begun, and no other begins: the caller may remove what they have made.
    """
    # concurrent.futures would do the same, and its import alone takes as long as all these calls.
    waiting = iter(enumerate(calls))
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    going: set[int] = set()
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number, call = next(waiting, (-1, None))
                if call is None:
                    return
                going.add(number)
            try:
                results[number] = call()
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's own thread
                errors[number] = error
            finally:
                going.discard(number)

    threads = [threading.Thread(target=work) for _ in range(min(AT_A_TIME, len(calls)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        with lock:
            for _ in waiting:
                pass
        # Not by `join`: to Python before 3.13 a thread whose join was interrupted has ended.
        while going:
            time.sleep(_LOOK_SECONDS)
        raise
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(calls))]
