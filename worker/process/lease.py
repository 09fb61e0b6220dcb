"""One chief a model directory: `lease.json` says who has it, and a counter in it moves while that one lives.

Another run that finds the counter moving is refused; one that finds it at rest takes over. The same run's
next chief takes over at once, and the one before, should it still live, finds itself overtaken and leaves.
Only the counter is compared, never two machines' clocks.

    {"run": "mnist", "id": "6f1c", "holder": "9ab2", "task": "mnist-chief-0", "since": "...", "counter": 17}

Standard library only: the supervisor of `watchdog` renews it, because TensorFlow may hold Python's lock in
the training process for as long as a peer is hung. Only behind a URL, which takes TensorFlow to open, a
thread of the training process does.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from worker.failures import program_error

RENEW_SECONDS = 3.0
STALE_SECONDS = 10.0
"""A counter at rest for so long is a dead holder's."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Holder:
    """What is in the file. `id` tells runs apart, `holder` one process of a run from the next.

    `since` is for people: the time by the holder's own clock.
    """

    run: str
    id: str
    holder: str
    task: str
    since: str
    counter: int = 0


class Files(Protocol):
    """Small files under a path or URL. `read` gives None for one that is not there; all raise OSError."""

    def read(self, path: str) -> str | None: ...  # noqa: D102
    def write(self, path: str, text: str) -> None: ...  # noqa: D102
    def remove(self, path: str) -> None: ...  # noqa: D102


class LocalFiles:
    """Of a mounted path."""

    def read(self, path: str) -> str | None:
        """See `Files`."""
        try:
            return Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Whole or not at all."""
        # Of one name, so that a killed writer leaves one leftover and not many.
        new = Path(f"{path}.new")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)

    def remove(self, path: str) -> None:
        """See `Files`."""
        Path(path).unlink(missing_ok=True)


class RemoteFiles:
    """Whatever TensorFlow opens. An object store writes a file whole."""

    def read(self, path: str) -> str | None:
        """See `Files`."""
        import tensorflow as tf

        try:
            with self._errors(), tf.io.gfile.GFile(path) as file:
                return str(file.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """See `Files`."""
        import tensorflow as tf

        with self._errors(), tf.io.gfile.GFile(path, "w") as file:
            file.write(text)

    def remove(self, path: str) -> None:
        """See `Files`."""
        import tensorflow as tf

        with contextlib.suppress(FileNotFoundError), self._errors():
            tf.io.gfile.remove(path)

    @contextlib.contextmanager
    def _errors(self) -> Any:
        import tensorflow as tf

        try:
            yield
        except tf.errors.NotFoundError as error:
            raise FileNotFoundError(str(error)) from error
        except tf.errors.OpError as error:
            raise OSError(str(error)) from error


def is_remote(directory: str) -> bool:
    """Whether only TensorFlow opens it."""
    return "://" in directory


class Lease:
    """This process's hold on `directory`. `holder.counter` does not matter."""

    def __init__(self, directory: str, holder: Holder, files: Files | None = None) -> None:
        self.directory = directory
        self.holder = holder
        self._path = f"{directory.rstrip('/')}/lease.json"
        self._files = files or (RemoteFiles() if is_remote(directory) else LocalFiles())

    def claim(self, alive: Callable[[], None] = lambda: None) -> None:
        """Takes the directory, after some seconds where another run had it.

        Raises Failure (PROGRAM_ERROR) where another run has it now, OSError where it cannot be written.
        """
        found = self._read()
        if found is not None and found.id != self.holder.id:
            until = time.monotonic() + STALE_SECONDS
            while time.monotonic() < until:
                alive()
                time.sleep(_LOOK_SECONDS)
                now = self._read()
                if now is None or now.id == self.holder.id:
                    break
                if (now.holder, now.counter) != (found.holder, found.counter):
                    raise program_error(
                        f"spec.modelDir: {self.directory} belongs to the run {now.run!r} ({now.task}, since "
                        f"{now.since}), which is training: wait for its end, delete it, or give this run a "
                        "directory of its own"
                    )
        counter = 0 if found is None else found.counter + 1
        self._write(replace(self.holder, counter=counter))

    def renew(self) -> Holder | None:
        """Moves the counter. Returns who has overtaken this process, or None. Raises OSError."""
        found = self._read()
        if found is not None and found.holder != self.holder.holder:
            return found
        self._write(replace(self.holder, counter=0 if found is None else found.counter + 1))
        return None

    def give_back(self) -> None:
        """Gives the directory back, if it is still this process's. Never raises."""
        with contextlib.suppress(OSError):
            found = self._read()
            if found is not None and found.holder == self.holder.holder:
                self._files.remove(self._path)

    def keep(self, overtaken: Callable[[Holder], None]) -> None:
        """A thread renews it from now on, and ends with a call of `overtaken` when another one has it.

        While it cannot be read or written, nobody else can take it either.
        """

        def renew() -> None:
            while True:
                time.sleep(RENEW_SECONDS)
                with contextlib.suppress(OSError):
                    other = self.renew()
                    if other is not None:
                        overtaken(other)
                        return

        threading.Thread(target=renew, name="lease", daemon=True).start()

    def to_json(self) -> dict[str, Any]:
        """For the supervisor."""
        return {"directory": self.directory, **asdict(self.holder)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Lease:
        """The inverse."""
        fields = dict(document)
        return cls(fields.pop("directory"), Holder(**fields))

    def _read(self) -> Holder | None:
        """A damaged file counts as none."""
        text = self._files.read(self._path)
        try:
            return Holder(**json.loads(text)) if text else None
        except (TypeError, ValueError):
            return None

    def _write(self, holder: Holder) -> None:
        self._files.write(self._path, json.dumps(asdict(holder)) + "\n")


def new_holder(run: str, run_id: str, address: str | None, task: str) -> Holder:
    """This process. A run that nobody submitted has no id; then its chief's `address` tells it apart."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return Holder(run, run_id or address or run, uuid.uuid4().hex, task, since)


def message(other: Holder) -> str:
    """What a chief says that was overtaken."""
    return (
        f"{other.task} of the run {other.run!r} has taken over spec.modelDir (since {other.since}): this one "
        "was silent for too long and leaves"
    )
