"""Several requests at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

AT_A_TIME: Final = 4

Result = TypeVar("Result")


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all calls, which run at the same time: that takes one round trip to the server, not one
    for each.

    If some fail, the first one's exception is raised when all have ended.
    """
    # concurrent.futures would do the same, and its import alone takes as long as all these calls.
    waiting = iter(enumerate(calls))
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        while (item := next(waiting, None)) is not None:
            number, call = item
            try:
                results[number] = call()
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's own thread
                errors[number] = error

    threads = [threading.Thread(target=work) for _ in range(min(AT_A_TIME, len(calls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(calls))]
