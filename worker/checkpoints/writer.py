"""Writes one checkpoint at a time, beside the training."""

from __future__ import annotations

import threading
from collections.abc import Callable

from worker.checkpoints.state_copy import Abandoned

Write = Callable[[Callable[[], bool]], None]
"""Writes. It gets a function that says whether to go on, and raises Abandoned soon after it does not."""
_LOOK_SECONDS = 0.1


class Writer:
    """Runs what `begin` gets in a thread. `failed` is called there with the error that it raised."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()

    @property
    def busy(self) -> bool:
        """Returns whether something is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, write: Write) -> None:
        """Begins to write. Nothing else may be being written."""
        assert not self.busy  # noqa: S101 - two would overlap
        self._abandoned.clear()
        # It ends with the process: what it has not finished is no checkpoint.
        self._thread = threading.Thread(
            target=self._run, args=(write, lambda: not self._abandoned.is_set()), name="saver", daemon=True
        )
        self._thread.start()

    def run(self, write: Write, go_on: Callable[[], bool]) -> None:
        """Writes in this thread. Nothing else may be being written."""
        assert not self.busy  # noqa: S101 - two would overlap
        self._run(write, go_on)

    def _run(self, write: Write, go_on: Callable[[], bool]) -> None:
        try:
            write(go_on)
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - the training goes on
            self._failed(error)

    def wait(self, alive: Callable[[], None], give_up: Callable[[], bool] = lambda: False) -> bool:
        """Waits until all is written, or until `give_up()`. Returns whether all is."""
        while self._thread is not None and self._thread.is_alive():
            if give_up():
                return False
            alive()
            self._thread.join(_LOOK_SECONDS)
        return True

    def abandon(self, alive: Callable[[], None], give_up: Callable[[], bool] = lambda: False) -> bool:
        """Gives up what is being written, and waits until that has ended. Returns whether it has."""
        self._abandoned.set()
        return self.wait(alive, give_up)
