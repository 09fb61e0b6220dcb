"""Lets one chief use a model directory: `lease.json` names the holder, and its counter grows while the holder
lives.

A chief of another run that finds the counter growing is refused; if the counter stands still, it takes the
lease. The next chief of the same run takes the lease at once. If the previous chief still lives, it notices
that it was overtaken and leaves. Only the counter is compared, never the clocks of two machines.

    {"run": "mnist", "id": "6f1c", "holder": "9ab2", "task": "mnist-chief-0", "since": "...", "counter": 17}

In a bucket each write is conditional: the file must still be the one that was read. So of two chiefs that
take a lease at the same moment one is refused. Elsewhere the later write wins, and the other chief notices.

Standard library only: the supervisor process renews the lease, because TensorFlow may hold Python's lock in
the training process for as long as a peer hangs. A lease behind a URL is renewed by a thread of the training
process: the supervisor forks, which neither TensorFlow's client nor that of buckets survives.
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

from worker.buckets.bucket import Bucket, ChangedError, is_bucket
from worker.failures import program_error

RENEW_SECONDS = 3.0
STALE_SECONDS = 10.0
"""A holder whose counter stands still for this long is dead."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Holder:
    """The content of the file. `id` differs between runs, `holder` between processes of one run.

    `since` is for people to read: the time by the holder's own clock.
    """

    run: str
    id: str
    holder: str
    task: str
    since: str
    counter: int = 0


class Files(Protocol):
    """Small files under a path or URL. `read` returns the text, None for a missing file, and the version of
    the file. `write` may refuse, with FileExistsError, to replace another version than the given one. All
    methods raise OSError.
    """

    def read(self, path: str) -> tuple[str | None, str | None]: ...  # noqa: D102
    def write(self, path: str, text: str, version: str | None) -> None: ...  # noqa: D102
    def remove(self, path: str) -> None: ...  # noqa: D102


class LocalFiles:
    """Files in a mounted path."""

    def read(self, path: str) -> tuple[str | None, str | None]:
        """See `Files`."""
        try:
            return Path(path).read_text(encoding="utf-8"), None
        except FileNotFoundError:
            return None, None

    def write(self, path: str, text: str, version: str | None) -> None:
        """Writes the whole file or nothing, whatever is there."""
        # The temporary name is constant, so that a killed writer leaves one such file and not many.
        new = Path(f"{path}.new")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)

    def remove(self, path: str) -> None:
        """See `Files`."""
        Path(path).unlink(missing_ok=True)


class RemoteFiles:
    """Files that TensorFlow opens. An object store writes a file whole."""

    def read(self, path: str) -> tuple[str | None, str | None]:
        """See `Files`."""
        import tensorflow as tf

        try:
            with self._errors(), tf.io.gfile.GFile(path) as file:
                return str(file.read()), None
        except FileNotFoundError:
            return None, None

    def write(self, path: str, text: str, version: str | None) -> None:
        """Writes whatever is there."""
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


class BucketFiles:
    """Objects in `bucket`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def read(self, path: str) -> tuple[str | None, str | None]:
        """See `Files`."""
        answer = self._bucket.read(self._name(path))
        return (None, None) if answer is None else (answer[0].decode(errors="replace"), answer[1])

    def write(self, path: str, text: str, version: str | None) -> None:
        """Refuses where the object is another than the one with `version`."""
        try:
            self._bucket.replace(self._name(path), text.encode(), version)
        except ChangedError as error:
            raise FileExistsError(str(error)) from None

    def remove(self, path: str) -> None:
        """See `Files`."""
        self._bucket.remove([self._name(path)])

    def _name(self, path: str) -> str:
        return path[len(self._bucket.url) + 1 :]


def is_remote(directory: str) -> bool:
    """Returns whether the training process itself must renew the lease."""
    return "://" in directory


def _files(directory: str) -> Files:
    if is_bucket(directory):
        return BucketFiles(Bucket(directory))
    return RemoteFiles() if is_remote(directory) else LocalFiles()


class Lease:
    """The lease of this process on `directory`. The value of `holder.counter` is ignored."""

    def __init__(self, directory: str, holder: Holder, files: Files | None = None) -> None:
        self.directory = directory
        self.holder = holder
        self._path = f"{directory.rstrip('/')}/lease.json"
        self._files = files or _files(directory)
        self._stopped = threading.Event()
        self._renewing: threading.Thread | None = None

    def claim(
        self, alive: Callable[[], None] = lambda: None, make_room: Callable[[], None] = lambda: None
    ) -> None:
        """Takes the lease, after some seconds where another run had it. Calls `make_room` once no other run
        writes to the directory, and before this one does.

        Raises Failure (PROGRAM_ERROR) where another run has it now, OSError where the file cannot be written.
        """
        earlier, version = self._read()
        if earlier is not None and earlier.id != self.holder.id:
            until = time.monotonic() + STALE_SECONDS
            while time.monotonic() < until:
                alive()
                time.sleep(_LOOK_SECONDS)
                asked = time.monotonic()
                now, version = self._read()
                # While a bucket does not answer, its holder cannot renew the lease either.
                until += max(0.0, time.monotonic() - asked - _LOOK_SECONDS)
                if now is None or now.id == self.holder.id:
                    break
                if (now.holder, now.counter) != (earlier.holder, earlier.counter):
                    raise self._taken(now)
        make_room()
        counter = 0 if earlier is None else earlier.counter + 1
        while True:
            try:
                self._write(replace(self.holder, counter=counter), version)
                return
            except FileExistsError:
                now, version = self._read()
                if now is not None and now.holder == self.holder.holder:
                    return  # it was written, and the answer was lost
                if now is not None and now.id != self.holder.id:
                    raise self._taken(now) from None
                alive()  # an earlier chief of this run has renewed it, or given it back

    def _taken(self, by: Holder) -> Exception:
        return program_error(
            f"spec.modelDir: {self.directory} belongs to the run {by.run!r} ({by.task}, since {by.since}), "
            "which is training: wait for its end, delete it, or give this run a directory of its own"
        )

    def renew(self) -> Holder | None:
        """Increments the counter. Returns the holder that has overtaken this process, or None. Raises
        OSError.
        """
        current, version = self._read()
        if current is not None and current.holder != self.holder.holder:
            return current
        try:
            self._write(replace(self.holder, counter=0 if current is None else current.counter + 1), version)
        except FileExistsError:
            pass  # the next call reads who has written it
        return None

    def give_back(self) -> None:
        """Removes the lease if this process still holds it. Never raises."""
        with contextlib.suppress(OSError):
            current, _ = self._read()
            if current is not None and current.holder == self.holder.holder:
                self._files.remove(self._path)

    def keep(self, overtaken: Callable[[Holder], None]) -> None:
        """Starts a thread that renews the lease, and ends with a call of `overtaken` when another process has
        it.

        While the file cannot be read or written, no other process can take it either.
        """

        def renew() -> None:
            while not self._stopped.wait(RENEW_SECONDS):
                with contextlib.suppress(OSError):
                    other = self.renew()
                    if other is not None:
                        overtaken(other)
                        return

        self._renewing = threading.Thread(target=renew, name="lease", daemon=True)
        self._renewing.start()

    def stop(self, seconds: float) -> bool:
        """Ends the renewals, and leaves the file for the next process of the same run. Returns whether the
        last renewal was over within `seconds`.
        """
        self._stopped.set()
        if self._renewing is not None:
            self._renewing.join(seconds)
        return self._renewing is None or not self._renewing.is_alive()

    def to_json(self) -> dict[str, Any]:
        """Returns a document for the supervisor."""
        return {"directory": self.directory, **asdict(self.holder)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Lease:
        """Reads the document of `to_json`."""
        fields = dict(document)
        return cls(fields.pop("directory"), Holder(**fields))

    def _read(self) -> tuple[Holder | None, str | None]:
        """Returns the holder and the file's version. A damaged file has no holder."""
        text, version = self._files.read(self._path)
        try:
            return (Holder(**json.loads(text)) if text else None), version
        except (TypeError, ValueError):
            return None, version

    def _write(self, holder: Holder, version: str | None) -> None:
        self._files.write(self._path, json.dumps(asdict(holder)) + "\n", version)


def new_holder(run: str, run_id: str, address: str | None, task: str) -> Holder:
    """Returns a holder for this process. A run that was not submitted has no id; its chief's `address`
    replaces it.
    """
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return Holder(run, run_id or address or run, uuid.uuid4().hex, task, since)


def message(other: Holder) -> str:
    """Returns the message of a chief that was overtaken."""
    return (
        f"{other.task} of the run {other.run!r} has taken over spec.modelDir (since {other.since}): this one "
        "was silent for too long and leaves"
    )
