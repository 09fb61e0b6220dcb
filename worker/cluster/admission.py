"""What a chief does with each server that it has just connected to, before the server works for it.

It frees what an earlier chief of the run has left there, and in an elastic run it looks whether the worker
fits the others: it may have come hours after them, from another image. Both are read from, and written to,
small files on the server's own disk, by operations placed on the server.
"""

from __future__ import annotations

import concurrent.futures
import glob
import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tensorflow as tf

from worker import contract
from worker.failures import program_error
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import server_contexts

_AT_A_TIME = 32


@dataclass(frozen=True)
class Identity:
    """What the servers of a run must have in common. `program` is a digest of the program's source, "" where
    it is in the image. `gpus` counts the GPUs.
    """

    run_id: str
    tensorflow: str
    program: str
    gpus: int

    @classmethod
    def own(cls, task: Task) -> Identity:
        """Returns this process's."""
        gpus = len(tf.config.list_physical_devices("GPU"))
        return cls(task.config.run_id, tf.version.VERSION, _digest(task.source), gpus)

    def to_json(self) -> str:
        """Returns one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Identity | None:
        """Reads the output of `to_json`; None for any other text."""
        try:
            document = json.loads(text)
            return cls(**{each.name: document[each.name] for each in fields(cls)})
        except (KeyError, TypeError, ValueError):
            return None


def introduce(task: Task) -> None:
    """Writes this server's identity. Call it before the server is up."""
    if task.directory is not None:
        path = Path(contract.identity_path(task.directory, task.name, task.name))
        path.write_text(Identity.own(task).to_json(), encoding="utf-8")


class Admission:
    """Looks at the servers of `task`'s run, whose chief it is. `refused` are the numbers of the workers that
    do not fit.
    """

    def __init__(self, task: Task, reporter: Reporter) -> None:
        self._task = task
        self._reporter = reporter
        self._expected = Identity.own(task)
        self._gpus: int | None = None
        self._are_parameter_servers_seen = False
        self.refused: set[int] = set()

    def check(self, workers: Collection[int]) -> set[int]:
        """Frees what earlier chiefs have left at `workers`, and at the ps the first time. Returns the workers
        that do not fit, each with a notice.

        Raises OpError where a server is lost meanwhile.
        """
        if self._task.directory is None:
            return set()
        servers = [("worker", worker) for worker in sorted(workers)]
        if not self._are_parameter_servers_seen:
            servers = [("ps", index) for index in self._task.cluster.get("ps", {})] + servers
        with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME, "admission") as pool:
            list(pool.map(lambda server: self._free(*server), servers))
            self._are_parameter_servers_seen = True
            if self._task.elastic is None:
                return set()
            found = dict(zip(sorted(workers), pool.map(self._identity, sorted(workers))))
        refused = {worker: why for worker in found if (why := self._difference(found[worker]))}
        for worker, why in refused.items():
            name = self._task.pod("worker", worker)
            self._reporter.notice(f"{name} is not taken in: {why}; the other workers continue without it")
        self.refused |= set(refused)
        return set(refused)

    def check_enough(self, workers: Collection[int]) -> None:
        """Raises Failure where too few are left at the beginning of a run."""
        least = self._task.elastic.min if self._task.elastic is not None else 1
        if len(workers) < least:
            names = ", ".join(self._task.pod("worker", worker) for worker in sorted(self.refused))
            raise program_error(
                f"{len(workers)} of at least {least} workers (spec.worker.minReplicas) can be used: {names} "
                "differ from the others in TensorFlow, program or GPUs; give all workers the same image and "
                "resources"
            )

    def _difference(self, found: Identity | None) -> str:
        """Returns why a worker does not fit, "" where it does."""
        expected = self._expected
        if found is None:
            return "it does not say what it runs"
        if self._gpus is None:
            self._gpus = found.gpus
        if found.run_id != expected.run_id:
            return "it belongs to another run of this name"
        if found.tensorflow != expected.tensorflow:
            return f"it has TensorFlow {found.tensorflow}, and the chief {expected.tensorflow}"
        if found.program and expected.program and found.program != expected.program:
            return "its program differs from the chief's"
        if found.gpus != self._gpus:
            return f"it has {found.gpus} GPUs, and the first worker {self._gpus}"
        return ""

    def _free(self, role: str, index: int) -> None:
        """Has this chief follow the one before it: what that had on the server is freed."""
        path = self._path(contract.chief_path, role, index)
        earlier = _read(path, role, index)
        own = server_contexts.own_id()
        if earlier.isdecimal() and int(earlier) != own:
            server_contexts.close(self._task.cluster[role][index], int(earlier))
        with _on(role, index):
            tf.io.write_file(path, str(own))

    def _identity(self, worker: int) -> Identity | None:
        return Identity.from_json(
            _read(self._path(contract.identity_path, "worker", worker), "worker", worker)
        )

    def _path(self, path_of: Any, role: str, index: int) -> str:
        task = self._task
        return str(path_of(task.directory, task.name, task.pod(role, index)))


def _read(path: str, role: str, index: int) -> str:
    """Returns the text of a server's file, "" where there is none."""
    with _on(role, index):
        # No attempt to read a missing file: a later operation on the server may raise that error, too.
        if int(tf.size(tf.io.matching_files(glob.escape(path)))) == 0:
            return ""
        text = tf.io.read_file(path)
    return bytes(text.numpy()).decode(errors="replace")


def _on(role: str, index: int) -> Any:
    return tf.device(f"/job:{role}/replica:0/task:{index}/device:CPU:0")


def _digest(source: Path | None) -> str:
    """Returns a digest of the files that Python could import from `source`."""
    if source is None:
        return ""
    digest = hashlib.sha256()
    for path in sorted(_files(source)):
        digest.update(f"\n{path.relative_to(source)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(source: Path) -> Iterator[Path]:
    for path in source.rglob("*.py"):
        # A ConfigMap's volume has its files twice, under `..data` too.
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
            yield path
