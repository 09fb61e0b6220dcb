"""What a chief does with each server that it has just connected to, before the server works for it.

It frees what an earlier chief of the run has left there, and in an elastic run it looks whether the worker
fits the others: it may have come hours after them, from another image. Both are read from, and written to,
small files on the server's own disk, by operations placed on the server.
"""

from __future__ import annotations

import concurrent.futures
import glob
from collections.abc import Collection

import tensorflow as tf

from worker.devices import on_server
from worker.failures import program_error
from worker.peers.elastic_identity import Identity, difference, digest
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import server_contexts

_AT_A_TIME = 32


def own_identity(task: Task) -> Identity:
    """Returns this process's."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    return Identity(task.config.run_id, tf.version.VERSION, digest(task.source), gpus)


def introduce(task: Task) -> None:
    """Writes this server's identity. Call it before the server is up."""
    path = task.file("identity")
    if path is not None:
        path.write_text(own_identity(task).to_json(), encoding="utf-8")


class Admission:
    """Looks at the servers of `task`'s run, whose chief it is. `refused` are the numbers of the workers that
    do not fit.
    """

    def __init__(self, task: Task, reporter: Reporter) -> None:
        self._task = task
        self._reporter = reporter
        self._expected = own_identity(task)
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
            identities = dict(zip(sorted(workers), pool.map(self._identity, sorted(workers))))
        refused = {worker: why for worker in identities if (why := self._difference(identities[worker]))}
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

    def _difference(self, identity: Identity | None) -> str:
        """Returns why a worker does not fit, "" where it does."""
        if self._gpus is None and identity is not None:
            self._gpus = identity.gpus
        return difference(identity, self._expected, self._gpus)

    def _free(self, role: str, index: int) -> None:
        """Has this chief follow the one before it: what that had on the server is freed."""
        path = self._task.file_of(self._task.pod(role, index), "chief")
        earlier = read_file(path, role, index)
        context_id = server_contexts.own_id()
        if earlier.isdecimal() and int(earlier) != context_id:
            server_contexts.close(self._task.cluster[role][index], int(earlier))
        with on_server(role, index):
            tf.io.write_file(path, str(context_id))

    def _identity(self, worker: int) -> Identity | None:
        path = self._task.file_of(self._task.pod("worker", worker), "identity")
        return Identity.from_json(read_file(path, "worker", worker))


def read_file(path: str, role: str, index: int) -> str:
    """Returns the text of a server's file, "" where there is none."""
    with on_server(role, index):
        # No attempt to read a missing file: a later operation on the server may raise that error, too.
        if int(tf.size(tf.io.matching_files(glob.escape(path)))) == 0:
            return ""
        text = tf.io.read_file(path)
    return bytes(text.numpy()).decode(errors="replace")
