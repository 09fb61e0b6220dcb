"""Whose logs are meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from launcher.errors import NotFoundError
from launcher.lists_and_counts import counted_role, listed
from worker.contract.task_names import pod_name

_SHOWN = 8
"""Names in a message."""


@dataclass(frozen=True)
class Selection:
    """Whose logs; an empty collection means all. `names` are roles, tasks or pods, as `worker`, `worker-1`,
    `mnist-worker-1` or `mnist-worker-1-x7k2p`.

    `since`: of the last so many seconds only; `tail`: of each pod the last so many lines only; `previous`: of
    the pods that a task had before its latest one only, and of the processes that this one had before its
    latest one.
    """

    roles: Collection[str] = ()
    indexes: Collection[int] = ()
    since: float | None = None
    previous: bool = False
    names: Collection[str] = ()
    tail: int | None = None

    def takes(self, run: str, role: str, index: int, pod: str) -> bool:
        """Whether the pod of this name, of the run's task, is meant."""
        if (self.roles and role not in self.roles) or (self.indexes and index not in self.indexes):
            return False
        return not self.names or bool(set(self.names) & {*_names(run, role, index), pod})

    def check(self, run: str, desired: Mapping[str, int], pods: Collection[tuple[str, int, str]]) -> None:
        """Raises NotFoundError, which says what there is, where a role, an index or a name is none of the
        run's. `desired` maps its roles to how many tasks they have; `pods` are the role, the index and the
        name of those that they have had: a worker that was scaled away may have printed something, too.
        """
        replicas = dict(desired)
        for role, index, _ in pods:
            replicas[role] = max(replicas.get(role, 1), index + 1)
        has = listed([counted_role(count, role) for role, count in replicas.items()])
        for role in self.roles:
            if role not in replicas:
                raise NotFoundError(f"run {run} has no {role}", f"It has {has}.")
        meant = {role: count for role, count in replicas.items() if not self.roles or role in self.roles}
        for index in self.indexes:
            if all(index >= count for count in meant.values()):
                task = f"{next(iter(meant))} {index}" if len(meant) == 1 else f"task {index} in any role"
                raise NotFoundError(f"run {run} has no {task}", f"It has {has}; each role counts from 0.")
        tasks = [(role, index) for role, count in replicas.items() for index in range(count)]
        known = {name for role, index in tasks for name in _names(run, role, index)} | {
            name for _, _, name in pods
        }
        for name in self.names:
            if name not in known:
                shown = listed([f"{role}-{index}" for role, index in tasks], _SHOWN)
                raise NotFoundError(f"run {run} has no role, task or pod {name}", f"Its tasks are {shown}.")


EVERYONE = Selection()


def _names(run: str, role: str, index: int) -> Sequence[str]:
    return (role, f"{role}-{index}", pod_name(run, role, index))
