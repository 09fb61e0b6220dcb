"""A run, as a program or a notebook has it in hand."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from launcher.backends.base import Backend, Board, LogLine, RunEvent, Selection
from launcher.config.spec import RoleName
from launcher.errors import ConflictError, LauncherError
from launcher.status import RunStatus

_FRAME_HEIGHT: Final = 900
"""Pixels, of the report in a notebook."""


class Run:
    """A run that was submitted, wherever it is. It is known by its name alone: every method asks the backend,
    so that a second `Run` of the same name, in another process too, is as good.

    Every method raises NotFoundError once the run is gone, and BackendError when what runs the tasks cannot
    be reached or refuses.

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
        """What there was to say: what a cluster makes of the file, what is left out on this machine."""
        self._backend = backend

    def __repr__(self) -> str:
        return f"Run({self.name!r}, namespace={self.namespace!r})"

    def _repr_html_(self) -> str | None:
        """The report, for a notebook: in a frame, since the notebook's styles would garble it. None where
        there is nothing to show.
        """
        try:
            page = self.report()
        except LauncherError:
            return None
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox="" title="run {html.escape(self.name)}" '
            f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
        )

    def status(self) -> RunStatus:
        """The run as it is now: its phase, its roles and tasks, and the last they have reported."""
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
    ) -> Iterator[LogLine]:
        """What the tasks have printed, task by task: of all, of a role or several, or of their tasks `index`;
        then, with `follow`, what they print until the run has ended.

        `since` takes the last so many seconds only, `tail` of each pod the last so many lines. `previous`
        takes the pods that a task had before its latest one. Raises NotFoundError for a role or an index that
        the run does not have. `print(line)` prints a line as a reader wants it, `line.text` is what the task
        printed.
        """
        from launcher import messages

        roles = [role] if isinstance(role, str) else role or ()
        indexes = [index] if isinstance(index, int) else index or ()
        selection = Selection(roles, indexes, since, previous, tail=tail)
        found = self._backend.logs(self.name, self.namespace, selection, follow=follow)
        return (
            line if line.record is None else replace(line, said=messages.describe(line.record))
            for line in found
        )

    def events(self, *, follow: bool = False) -> Iterator[RunEvent]:
        """What the cluster says about the run's objects, oldest first; with `follow`, until the run has
        ended. On this machine nobody says anything: BackendError.
        """
        return self._backend.events(self.name, self.namespace, follow=follow)

    def wait(
        self, timeout: float | None = None, *, until: Literal["ended", "running"] = "ended"
    ) -> RunStatus:
        """Waits until the run has ended, or until every task runs, and returns how it is then; that it has
        failed raises nothing. Whoever waits also stops what the run's end leaves running, as its cleanPolicy
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

    def suspend(self) -> None:
        """Stops the tasks for now. Raises ConflictError after the run's end."""
        self._backend.suspend(self.name, self.namespace)

    def resume(self) -> None:
        """Goes on with a suspended run, from its last backup. Raises ConflictError after the run's end."""
        self._backend.resume(self.name, self.namespace)

    def tensorboard(self, port: int = 0) -> Board:
        """The run's TensorBoard at the address `url` of this machine, on a `port` of yours or any that is
        free, until it is closed: it is a context manager, and has `wait` and `close`. On Kubernetes the run
        must have been submitted with `tensorboard: {}`; here one is started. Raises ConflictError where there
        is nothing to show.
        """
        return self._backend.tensorboard(self.name, self.namespace, port)

    def report(self) -> str:
        """The report of the run until now: one HTML page to write to a file. It loads nothing. In a notebook,
        a cell that ends with the run shows it.
        """
        from launcher.report import page

        return page.page_of(self._backend.history(self.name, self.namespace))

    def places(self) -> Mapping[str, str]:
        """Where to find what the run leaves: `{"model directory": ...}`, and on this machine its `logs`."""
        return self._backend.places(self.name, self.namespace)

    def copy(self, path: str = "", target: str | os.PathLike[str] = ".", *, timeout: float = 300.0) -> Path:
        """Copies a file or a folder below the run's model directory, such as `export`, "" for all of it, to
        this machine: to `target`, or into it, where that is a folder. Returns what was written. On Kubernetes
        a pod that lives as long as that takes reads the claim; it has `timeout` seconds to come up.

        Raises ConflictError where there is no such file, or the target is there already.
        """
        return self._backend.copy(self.name, self.namespace, path, os.fspath(target), timeout)

    def delete(self) -> str:
        """Ends the run, if need be, and removes what is left of it. Returns what stays, such as a claim with
        the model, and how to be rid of it; "" where nothing does.
        """
        return self._backend.delete(self.name, self.namespace)
