"""The runs on this machine's disk: one directory each, found by namespace and name from anywhere.

    $XDG_STATE_HOME/tf-launcher/        by default ~/.local/state/tf-launcher
      runs/<namespace>/<run>.lock       held (flock) by the run's guard and supervisor: they die, it is free
      runs/<namespace>/<run>/
        run.json                        what was submitted: `Submission`; never changes
        state.json                      the Jobs and pods, as Kubernetes would show them; replaced as a whole
        expires                         when a finished run may be removed, seconds since the epoch
        reserve                         space for the last state.json when the disk is full
        control                         a FIFO: one word a line to the supervisor
        supervisor.log                  empty, unless something is wrong
        pods/<pod>/log.<attempt>        standard output and error together; grows without a bound
        pods/<pod>/work/                the working directory
        pods/<pod>/volumes/<volume>/    ConfigMaps and emptyDirs
        claims/<claim>/                 volumes that go with the run (reclaim policy Delete)
      volumes/<namespace>/<claim>/      volumes that stay
      ports.lock                        held while ports are chosen

Readable by their owner alone, as programs and their environments are.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from launcher.naming import RECLAIM_ANNOTATION

_RESERVE_BYTES: Final = 256 << 10
"""A state of some 200 pods."""


@dataclass(frozen=True)
class Settings:
    """What differs from Kubernetes by intent; durations are in seconds.

    `backoff` and `backoff_limit`: see `jobs.Backoff`. `peers_grace`: how long the other Jobs may take to
    end by themselves once the primary has succeeded. The tasks of training leave at once, released by the
    chief; an evaluator may have a checkpoint left to evaluate. `strangers_grace`: the same where only images
    are left that do not know how to. `failed_grace`: how long the primary may take to end by itself once what
    it needs has failed for good.
    """

    backoff: float = 1.0
    backoff_limit: float = 60.0
    peers_grace: float = 600.0
    strangers_grace: float = 10.0
    failed_grace: float = 10.0


@dataclass(frozen=True)
class Submission:
    """What was submitted. `addresses` maps `host:port` in the cluster to `host:port` on this machine;
    `uid` tells one submission of a name from the next.
    """

    run: str
    namespace: str
    uid: str
    submitted: float
    objects: Sequence[Mapping[str, Any]]
    addresses: Mapping[str, str]
    settings: Settings = field(default_factory=Settings)

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """The objects of one kind, in their order."""
        return [item for item in self.objects if item["kind"] == kind]

    def config_maps(self) -> dict[str, dict[str, str]]:
        """Name -> key -> text."""
        return {item["metadata"]["name"]: dict(item.get("data") or {}) for item in self.of_kind("ConfigMap")}

    def binary_data(self) -> dict[str, dict[str, bytes]]:
        """Name -> key -> bytes, of the keys that are no text."""
        return {
            item["metadata"]["name"]: {
                key: base64.b64decode(value) for key, value in (item.get("binaryData") or {}).items()
            }
            for item in self.of_kind("ConfigMap")
        }

    def claims_deleted_with_run(self) -> frozenset[str]:
        """The claims whose directory lies in the run's own."""
        return frozenset(
            item["metadata"]["name"]
            for item in self.of_kind("PersistentVolumeClaim")
            if (item["metadata"].get("annotations") or {}).get(RECLAIM_ANNOTATION) == "Delete"
        )


def new_uid() -> str:
    """As an object's uid in Kubernetes."""
    return str(uuid.uuid4())


def write_json(path: Path, value: Any) -> None:
    """Replaces the file as a whole: a reader sees the old content or the new. Raises OSError."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


class RunDirectory:
    """One run's directory. It may not be there."""

    def __init__(self, store: Path, namespace: str, run: str) -> None:
        self.store = store
        self.namespace = namespace
        self.run = run
        self.path = store / "runs" / namespace / run
        self.state_path = self.path / "state.json"
        self.control_path = self.path / "control"
        self.log_path = self.path / "supervisor.log"

    def submission(self) -> Submission | None:
        """None when there is no such run."""
        document = _read_json(self.path / "run.json")
        if document is None:
            return None
        return Submission(**{**document, "settings": Settings(**document["settings"])})

    def state(self) -> dict[str, Any] | None:
        """`{"jobs": [...], "pods": [...], "ended": bool, "supervisor": pid}`; None before the first word."""
        state: dict[str, Any] | None = _read_json(self.state_path)
        return state

    def create(self, submission: Submission) -> None:
        """Makes the directory in one step, in place of an older one. The caller holds the lock."""
        self.remove()
        new = self.path.with_name(f".{self.run}.{submission.uid}")
        new.mkdir(parents=True, mode=0o700)
        write_json(new / "run.json", asdict(submission))
        (new / "reserve").write_bytes(bytes(_RESERVE_BYTES))
        os.mkfifo(new / self.control_path.name, 0o600)
        new.rename(self.path)

    def remove(self) -> None:
        """Removes the directory and the pods' temporary files. The caller holds the lock."""
        submission = self.submission()
        if submission is not None:
            shutil.rmtree(temporary_root(submission.uid), ignore_errors=True)
        gone = self.path.with_name(f".{self.run}.removed")
        shutil.rmtree(gone, ignore_errors=True)
        try:
            self.path.rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def pod(self, hostname: str) -> Path:
        """A pod's own directory."""
        return self.path / "pods" / hostname

    def log(self, hostname: str, attempt: int) -> Path:
        """What a pod's process printed."""
        return self.pod(hostname) / f"log.{attempt}"

    def claim(self, name: str, with_run: bool) -> Path:
        """The directory that stands for a PersistentVolumeClaim."""
        return self.path / "claims" / name if with_run else self.store / "volumes" / self.namespace / name

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Replaces the state; the last one, on a full disk, with the space that was reserved for it.

        Raises OSError.
        """
        if state["ended"]:
            (self.path / "reserve").unlink(missing_ok=True)
        write_json(self.state_path, state)

    def set_expiry(self, when: float) -> None:
        """`when` is in seconds since the epoch."""
        write_json(self.path / "expires", when)

    def expired(self) -> bool:
        """Whether a finished run's time to live is over."""
        when = _read_json(self.path / "expires")
        return isinstance(when, int | float) and time.time() >= when

    def open_control(self) -> int:
        """The supervisor's end of the control pipe. What is sent from now on waits in it to be read."""
        return os.open(self.control_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def send(self, word: str) -> bool:
        """Says a word to the supervisor. False when there is none."""
        try:
            pipe = os.open(self.control_path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # ENXIO: nobody reads; ENOENT: no such run
            return False
        try:
            os.write(pipe, f"{word}\n".encode())
        finally:
            os.close(pipe)
        return True

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.run}.lock")

    def alive(self) -> bool:
        """Whether the run's guard or supervisor lives. A lock cannot be mistaken, as a process number can."""
        try:
            descriptor = os.open(self._lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def acquire(self, timeout: float = 0.5) -> int | None:
        """Takes the lock: a descriptor to be closed, or handed on. None when it is held for so many
        seconds; `alive` holds it for an instant.
        """
        self._lock_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        until = time.monotonic() + timeout
        while True:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino == self._lock_path.stat().st_ino:
                    return descriptor
                os.close(descriptor)  # `release` removed the file in between
            except FileNotFoundError:
                os.close(descriptor)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= until:
                    return None
                time.sleep(0.02)

    def release(self, descriptor: int) -> None:
        """Gives the lock back, and its file too when the run is gone."""
        if not self.path.exists():
            self._lock_path.unlink(missing_ok=True)
        os.close(descriptor)


def default_root() -> Path:
    """Where the runs are, by the XDG base directory specification: a relative path there is ignored."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "tf-launcher"


def temporary_root(uid: str) -> Path:
    """Where a run's pods have their /tmp. Short, because a Unix socket's path has at most 107 characters
    and programs put sockets into TMPDIR (multiprocessing does).
    """
    return Path(tempfile.gettempdir()) / f"tf-launcher-{uid[:8]}"


def run_directories(store: Path, namespace: str | None = None) -> Iterator[RunDirectory]:
    """All runs, or a namespace's, by name."""
    for space in sorted((store / "runs").glob(namespace or "*")):
        for path in sorted(space.glob("*/run.json")):
            if not path.parent.name.startswith("."):
                yield RunDirectory(store, space.name, path.parent.name)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock on the file; waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep(store: Path) -> None:
    """Removes the finished runs whose ttlSecondsAfterFinished is over. Nobody stays behind to do it at
    the time: the next command does.
    """
    for directory in run_directories(store):
        if directory.expired() and (lock := directory.acquire(timeout=0)) is not None:
            try:
                if directory.expired():
                    directory.remove()
            finally:
                directory.release(lock)
