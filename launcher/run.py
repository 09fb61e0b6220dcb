"""A run as an object for programs and notebooks."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from launcher.backends.base import Backend, Board, LogLine, RunEvent, Selection
from launcher.errors import ConflictError, LauncherError

if TYPE_CHECKING:
    from launcher.config.spec import RoleName
    from launcher.status import RunStatus
    from launcher.task_orders import Profile, Stacks
    from launcher.task_records.measurements import Measurement

_FRAME_HEIGHT: Final = 900
"""Pixels, of the report in a notebook."""


class Run:
    """A run that was submitted, on a cluster or on this machine. The object has only the run's name and
    place: every method asks the backend, so that another `Run` of the same name is equivalent, also in
    another process.

    Every method raises NotFoundError once the run is deleted, and BackendError when the cluster or this
    machine cannot be reached or refuses.

        run = launcher.submit("cluster.yaml", backend="local")
        for line in run.logs(follow=True):
            print(line)
        assert run.wait().phase == "Succeeded"
        run.delete()
    """

    def __init__(self, name: str, namespace: str, backend: Backend, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.namespace = namespace
        self.notes = notes
        """Notices of the submission: changes that the cluster makes to the file, and fields that have no
        effect on this machine.
        """
        self._backend = backend

    def __repr__(self) -> str:
        return f"Run({self.name!r}, namespace={self.namespace!r})"

    def _repr_html_(self) -> str | None:
        """Returns the report for a notebook, in a frame, because the notebook's styles would change its look.
        None where there is nothing to show.
        """
        try:
            page = self.report()
        except LauncherError:
            return None
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox="" title="run {html.escape(self.name)}" '
            f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
        )

    @property
    def arguments(self) -> str:
        """The run's name and the options with which a command finds it: `mnist -n vision`."""
        return self.name + self._backend.options(self.namespace)

    def status(self) -> RunStatus:
        """Returns the current status: the run's phase, its roles and tasks, and their latest reports."""
        return self._backend.status(self.name, self.namespace)

    def logs(
        self,
        role: RoleName | Sequence[RoleName] | None = None,
        index: int | Sequence[int] | None = None,
        *,
        follow: bool = False,
        since: float | None = None,
        tail: int | None = None,
        previous: bool = False,
        raw: bool = False,
    ) -> Iterator[LogLine]:
        """Yields what the tasks have printed, task by task: all tasks, those of one or several roles, or the
        tasks `index` of these; then, with `follow`, what they print until the run has ended. What TensorFlow
        prints at every start is left out unless `raw` is set.

        `since` limits it to the last seconds, `tail` to the last lines of each pod. `previous` reads the pods
        and processes that a task had before its latest one. Raises NotFoundError for a role or an index that
        the run does not have. `print(line)` prints a line for people to read; `line.text` is what the task
        printed.
        """
        from launcher.task_records import presentation, task_output

        roles = [role] if isinstance(role, str) else role or ()
        indexes = [index] if isinstance(index, int) else index or ()
        selection = Selection(roles, indexes, since, previous, tail=tail)
        lines = self._backend.logs(self.name, self.namespace, selection, follow=follow)
        return (
            line if line.record is None else replace(line, words=presentation.describe(line.record))
            for line in lines
            if raw or line.record is not None or not task_output.is_chatter(line.text)
        )

    def events(self, *, follow: bool = False) -> Iterator[RunEvent]:
        """Yields the Kubernetes events of the run's objects, oldest first; with `follow`, until the run has
        ended. This machine has no events, and raises BackendError.
        """
        return self._backend.events(self.name, self.namespace, follow=follow)

    def wait(
        self, timeout: float | None = None, *, until: Literal["ended", "running"] = "ended"
    ) -> RunStatus:
        """Waits until the run has ended, or until every task runs, and returns its status; a failed run
        raises no error. It also stops the tasks that still run after the run's end, as the run's cleanPolicy
        says.

        Raises ConflictError when that takes more than `timeout` seconds; the run keeps running, as it does
        after KeyboardInterrupt.
        """
        began = time.monotonic()
        status = self.status()
        for update in self._backend.follow(self.name, self.namespace):
            status = update.status
            if until == "running" and status.all_run:
                return status
            if timeout is not None and not status.ended and time.monotonic() - began >= timeout:
                done = "come to run" if until == "running" else "ended"
                raise ConflictError(
                    f"run {self.name} has not {done} within {timeout:g} s", "It is still running."
                )
        self._backend.clean(self.name, self.namespace)
        return status

    def kill(self, task: str) -> None:
        """Ends the process of a task, such as `worker-1`, by SIGKILL, to see the run survive that. On this
        machine only: BackendError. Raises ConflictError for a task that does not run.
        """
        self._backend.kill(self.name, self.namespace, task)

    def scale(self, workers: int, role: Literal["worker", "data-worker"] = "worker") -> int:
        """Changes the number of workers of an elastic run, one with `minReplicas`, while it runs; or that of
        the data workers of its `dataService`. Returns the number before. Raises ConflictError for another
        run, for a number that its file does not allow, while it is suspended and after its end, and where
        somebody else scales it at the same time.
        """
        return self._backend.scale(self.name, self.namespace, workers, role)

    def suspend(self) -> None:
        """Stops the tasks until `resume`. Raises ConflictError after the run's end."""
        self._backend.suspend(self.name, self.namespace)

    def resume(self) -> str:
        """Continues a suspended run, from its last backup. Returns what is different from before, such as
        nodes that `precheck` leaves out; "" where nothing is. Raises ConflictError after the run's end.
        """
        return self._backend.resume(self.name, self.namespace)

    def tensorboard(self, port: int = 0) -> Board:
        """Serves the run's TensorBoard at the address `url` of this machine, on `port` or any free port,
        until it is closed. The result is a context manager, and has `wait` and `close`. On Kubernetes the run
        must have been submitted with `tensorboard: {}`; on this machine a TensorBoard is started. Raises
        ConflictError where there is nothing to show.
        """
        return self._backend.tensorboard(self.name, self.namespace, port)

    def stacks(self, *tasks: str) -> list[Stacks]:
        """Returns the Python stacks of the training processes, which go on: of all tasks that run, or of the
        given ones, named as `logs` takes them (`worker`, `worker-1`). Raises NotFoundError for a task that
        the run does not have.
        """
        from launcher import task_orders

        return task_orders.stacks(self._backend, self.name, self.namespace, tasks)

    def profile(self, steps: int = 20, *, timeout: float = 300.0) -> Profile:
        """Has TensorFlow's profiler run in all tasks that train for the next steps, at least so many and at
        most 1,000, and returns where the model directory has the result, for TensorBoard. Raises SpecError
        for more steps, and ConflictError where the run has no `modelDir`, does not train now, or the steps
        take longer than `timeout` seconds.
        """
        from launcher import task_orders

        return task_orders.profile(self._backend, self.name, self.namespace, steps, timeout)

    def metrics(self) -> list[Measurement]:
        """Returns what the run has measured until now, also while it trains: the loss and the metrics of the
        training, about one measurement a second and one at each epoch's end, and those of each evaluation;
        oldest first. The list is empty before the first step. It reads the tasks' logs: on a cluster, what
        was printed by pods that are deleted is missing.

            best = min(each.metrics["loss"] for each in run.metrics() if each.evaluation)
        """
        from launcher.task_records import measurements

        lines = self._backend.history(self.name, self.namespace).lines
        return measurements.of_records(line.record for line in lines if line.record is not None)

    def report(self) -> str:
        """Returns the report of the run until now: one HTML page to write to a file. It loads no other files.
        In a notebook, a cell that ends with the run shows it.
        """
        from launcher.report import page

        return page.page_of(self._backend.history(self.name, self.namespace))

    def places(self) -> Mapping[str, str]:
        """Returns where the run's files are: `{"model directory": ...}`, and on this machine its `logs`."""
        return self._backend.places(self.name, self.namespace)

    def copy(self, path: str = "", target: str | os.PathLike[str] = ".", *, timeout: float = 300.0) -> Path:
        """Copies a file or a folder of the run's model directory, such as `export`, or "" for all of it, to
        this machine: to `target`, or into `target` if that is a folder. Returns the path that was written. On
        Kubernetes a temporary pod reads the claim; it has `timeout` seconds to start.

        Raises ConflictError where the file does not exist, or the target does already.
        """
        return self._backend.copy(self.name, self.namespace, path, os.fspath(target), timeout)

    def delete(self) -> str:
        """Ends the run if it is running, and removes its objects. Returns what stays, such as a claim with
        the model, and how to remove it; "" where nothing stays.
        """
        return self._backend.delete(self.name, self.namespace)
