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
        pods/<pod>/growth.<attempt>     when the log grew: `log_growth`
        pods/<pod>/work/                the working directory
        pods/<pod>/volumes/<volume>/    ConfigMaps and emptyDirs
      volumes/<namespace>/<claim>/      claims: only `delete` removes one, and only by its reclaim policy
      ports.lock                        held while ports are chosen

Readable by their owner alone, as programs and their environments are.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from launcher.backends import folders
from launcher.backends.base import PROGRAM
from launcher.backends.local import file_format
from launcher.backends.local.file_format import UnreadableError
from launcher.backends.run_end_rule import Limits
from launcher.errors import BackendError
from launcher.object_names import is_dns_1035, is_dns_1123
from launcher.status import goes_with_run

_RESERVE_BYTES: Final = 256 << 10
"""A state of some 200 pods."""

_BEGINNING_BYTES: Final = 4096
"""Of a file, where the submission's uid is."""


_UNFINISHED = re.compile(r"\.([a-z0-9-]+)\.(removed|[0-9a-f-]{36})")
"""See `RunDirectory.create` and `remove`."""


@dataclass(frozen=True)
class SupervisorSettings(Limits):
    """The policy's limits, and what differs from Kubernetes by intent: `backoff` and `backoff_limit`, in
    seconds; see `jobs.Backoff`.
    """

    backoff: float = 1.0
    backoff_limit: float = 60.0


@dataclass(frozen=True)
class Submission:
    """What was submitted. `addresses` maps `host:port` in the cluster to `host:port` on this machine;
    `uid` tells one submission of a name from the next.
    """

    run: str
    namespace: str
    uid: str
    submitted: float
    objects: Sequence[dict[str, Any]]
    addresses: Mapping[str, str]
    settings: SupervisorSettings = field(default_factory=SupervisorSettings)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
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

    def claims(self, *, deleted: bool) -> list[str]:
        """The claims that the run has made: those that `delete` removes with it, or those that stay."""
        return [
            item["metadata"]["name"]
            for item in self.of_kind("PersistentVolumeClaim")
            if goes_with_run(item) is deleted
        ]


def new_uid() -> str:
    """Like an object's uid in Kubernetes."""
    return str(uuid.uuid4())


class BrokenRunError(BackendError):
    """A file of the run cannot be read."""


def write_json(path: Path, value: Any) -> None:
    """Replaces the file as a whole: a reader sees the old content or the new, after a power failure too.
    Raises OSError, and then leaves nothing of the new content on what may be a full disk.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Has the disk keep the names in a folder as they are now. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
        """None if there is no such run. Raises BrokenRunError."""
        document = self._read("run.json", file_format.SUBMISSION)
        if document is None:
            if not self.path.is_dir():
                return None
            # It may have been created in between.
            document = self._read("run.json", file_format.SUBMISSION)
        if document is None:
            raise self._broken("run.json", "is missing")
        if wrong := file_format.mismatch_of_submission(document):
            raise self._broken("run.json", f"does not hold what this version expects: {wrong}")
        if (document["namespace"], document["run"]) != (self.namespace, self.run):
            raise self._broken("run.json", f"is that of run {document['run']} in {document['namespace']}")
        known = {name: document[name] for name in (field.name for field in fields(Submission))}
        settings = {field.name for field in fields(SupervisorSettings)}
        known["settings"] = SupervisorSettings(
            **{k: v for k, v in document["settings"].items() if k in settings}
        )
        return Submission(**known)

    def state(self) -> dict[str, Any] | None:
        """`{"jobs": [...], "pods": [...], "ended": bool, "supervisor": pid}`; None before the first word.
        Raises BrokenRunError.
        """
        state: dict[str, Any] | None = self._read(self.state_path.name, file_format.STATE)
        return state

    def uid(self) -> str | None:
        """The submission's uid, even if only the beginning of its file is left; None if it is not known."""
        for name, key in (("run.json", "uid"), (self.state_path.name, "submission")):
            if not (self.path / name).is_file():
                continue
            try:
                with (self.path / name).open("rb") as file:
                    beginning = file.read(_BEGINNING_BYTES)
            except OSError:
                continue
            if match := re.search(rf'"{key}":"([0-9a-f-]{{36}})"'.encode(), beginning):
                return match.group(1).decode()
        return None

    def _read(self, name: str, shape: file_format.Shape) -> Any:
        try:
            return file_format.read(self.path / name, shape)
        except UnreadableError as error:
            raise self._broken(name, str(error)) from error

    def _broken(self, name: str, why: str) -> BrokenRunError:
        return BrokenRunError(
            f"run {self.run} in namespace {self.namespace} is broken: {self.path / name} {why}",
            f"`{PROGRAM} delete {self.run} -n {self.namespace}` removes the run; its volumes stay.",
        )

    def create(self, submission: Submission) -> None:
        """Makes the directory in one step, in place of an older one. The caller holds the lock."""
        new = self.path.with_name(f".{self.run}.{submission.uid}")
        try:
            new.mkdir(parents=True, mode=0o700)
            write_json(new / "run.json", asdict(submission))
            (new / "reserve").write_bytes(bytes(_RESERVE_BYTES))
            os.mkfifo(new / self.control_path.name, 0o600)
            self.remove()
            new.rename(self.path)
            sync_folder(self.path.parent)
        except OSError:
            folders.remove_if_possible(new)
            raise

    def remove(self) -> None:
        """Removes the directory and the pods' temporary files. The caller holds the lock."""
        if (uid := self.uid()) is not None:
            remove_scratch(uid)
        gone = self.path.with_name(f".{self.run}.removed")
        folders.remove_if_possible(gone)
        try:
            self.path.rename(gone)
        except FileNotFoundError:
            return
        folders.remove_if_possible(gone)

    def pod(self, hostname: str) -> Path:
        """A pod's own directory."""
        return self.path / "pods" / hostname

    def volume(self, hostname: str, name: str) -> Path:
        """A volume of a pod's own."""
        return self.pod(hostname) / "volumes" / name

    def log(self, hostname: str, attempt: int) -> Path:
        """What a pod's process printed."""
        return self.pod(hostname) / f"log.{attempt}"

    def growth(self, hostname: str, attempt: int) -> Path:
        """When its log grew."""
        return self.pod(hostname) / f"growth.{attempt}"

    def claim(self, name: str) -> Path:
        """The directory that stands for a PersistentVolumeClaim. Not in the run's own, which the next
        submission of the same name replaces: that one resumes from what is on the claim. Release 0.1.0 had
        those there that are deleted with the run.
        """
        run_claim = self.path / "claims" / name
        return run_claim if run_claim.is_dir() else self.store / "volumes" / self.namespace / name

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Replaces the state. Raises OSError."""
        write_json(self.state_path, state)

    def free_reserve(self) -> None:
        """Frees reserved space, so that the last state can be written to a full disk. Raises OSError."""
        (self.path / "reserve").unlink(missing_ok=True)

    def set_expiry(self, when: float) -> None:
        """`when` is in seconds since the epoch."""
        write_json(self.path / "expires", when)

    def expired(self) -> bool:
        """Whether a finished run's time to live is over. Raises BrokenRunError."""
        when = self._read("expires", file_format.EXPIRES)
        return when is not None and bool(time.time() >= when)

    def open_control(self) -> int:
        """The supervisor's end of the control pipe, in which words wait from now on."""
        return os.open(self.control_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def send(self, word: str) -> bool:
        """Sends a word to the supervisor. False if there is none."""
        try:
            pipe = os.open(self.control_path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # ENXIO: nobody reads; ENOENT: no such run
            return False
        try:
            if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                return False
            os.write(pipe, f"{word}\n".encode())
        except BrokenPipeError:  # it ended since the pipe was opened
            return False
        finally:
            os.close(pipe)
        return True

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.run}.lock")

    def alive(self) -> bool:
        """Whether the run's guard or supervisor runs. It is read from the lock, since a process number may be
        used again.
        """
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
        """Takes the lock, as a descriptor to close or hand on. None if another process holds it for so many
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

    def unlock(self, descriptor: int) -> None:
        """Releases the lock, and removes its file if the run is gone."""
        if not self.path.exists():
            self._lock_path.unlink(missing_ok=True)
        os.close(descriptor)

    @contextlib.contextmanager
    def held(self, timeout: float = 0.0) -> Iterator[int | None]:
        """Holds the lock, which `acquire` takes: its descriptor, or None."""
        descriptor = self.acquire(timeout)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                self.unlock(descriptor)


def default_root() -> Path:
    """Where the runs are, by the XDG base directory specification: a relative path there is ignored."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "tf-launcher"


def temporary_root(uid: str) -> Path:
    """Where a run's pods have their /tmp. Short, because a Unix socket's path has at most 107 characters
    and programs put sockets into TMPDIR (multiprocessing does).
    """
    return Path(tempfile.gettempdir()) / f"tf-launcher-{uid[:8]}"


def memory_root(uid: str) -> Path | None:
    """Where a run's pods keep copies in memory; None where this machine has no such place."""
    shared = Path("/dev/shm")  # noqa: S108 - the run's own folder in it has a name of its own
    return shared / f"tf-launcher-{uid[:8]}" if os.access(shared, os.W_OK | os.X_OK) else None


def remove_scratch(uid: str) -> None:
    """Removes what a run's pods have outside of its directory."""
    for root in (temporary_root(uid), memory_root(uid)):
        if root is not None:
            folders.remove_if_possible(root)


def run_directories(store: Path, namespace: str | None = None) -> Iterator[RunDirectory]:
    """All runs, or a namespace's, by name."""
    runs = store / "runs"
    for space in _folders(runs) if namespace is None else [runs / namespace]:
        if is_dns_1123(space.name):
            for path in _folders(space):
                if is_dns_1035(path.name):
                    yield RunDirectory(store, space.name, path.name)


def unfinished(store: Path) -> Iterator[tuple[RunDirectory, Path]]:
    """The folders of runs that were being made or removed, or still are, each with its run."""
    for space in _folders(store / "runs"):
        for path in _folders(space):
            name = _UNFINISHED.fullmatch(path.name)
            if name is not None and is_dns_1035(name.group(1)) and is_dns_1123(space.name):
                yield RunDirectory(store, space.name, name.group(1)), path


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(inner for inner in path.iterdir() if inner.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock on the file; waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
