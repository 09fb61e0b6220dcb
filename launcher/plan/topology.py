"""The tasks of the cluster: TrainingCluster -> Topology. Pure; knows neither Kubernetes' objects nor Jinja2.

How TensorFlow reads TF_CONFIG: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from launcher import object_names
from launcher.config.spec import Role, RoleName, RoleTemplate, Spec, TrainingCluster
from launcher.plan import roles
from launcher.plan.roles import DATA_ROLES, ResolvedRole
from worker.contract.environment import Env
from worker.contract.run_config import ElasticWorkers
from worker.contract.strategies import BESIDE, STRATEGIES, Kind
from worker.contract.task_names import EXTRA_WORKER, task_type

INDEX: Final = f"$({Env.TASK_INDEX})"
"""Replaced by Kubernetes in every pod with the pod's own index."""

MAX_ENV_BYTES: Final = 131_000
"""Linux allows 131,072 bytes for one environment string, its name included (MAX_ARG_STRLEN)."""

FILE_BYTES: Final = 100_000
"""Above this, the runtime reads the cluster from a file. The limit is well below the one above."""

ROLES: Final[tuple[RoleName, ...]] = ("chief", "worker", "ps", "evaluator")
"""The roles that the file has by these names."""


@dataclass(frozen=True)
class Task:
    """One process of the run. `address` is `host:port`, the same for as long as the run lives."""

    role: RoleName
    index: int
    pod_name: str
    address: str


@dataclass(frozen=True)
class Topology:
    """The run's tasks, and what each is told.

    `roles` are those with at least one task, resolved, in the order chief, worker, ps, evaluator. `jobset`:
    they are the replicatedJobs of one JobSet, which gives the pods names of its own.
    """

    cluster: TrainingCluster
    roles: tuple[ResolvedRole, ...]
    jobset: bool = False

    @property
    def run(self) -> str:
        """The run's name."""
        return self.cluster.metadata.name

    @property
    def namespace(self) -> str:
        """Where it lives."""
        return self.cluster.metadata.namespace

    @property
    def primary(self) -> RoleName:
        """The role whose Job's end is the run's: the chief, or the workers where there is none."""
        return self.roles[0].name

    def role(self, name: RoleName) -> ResolvedRole:
        """The role with this name; it must have tasks."""
        return next(role for role in self.roles if role.name == name)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All that the run can have, in the order of `roles`."""
        return tuple(self._tasks())

    def _tasks(self) -> Iterator[Task]:
        for name, addresses in self.addresses.items():
            pod = self.job_name(name)
            for index, address in enumerate(addresses):
                yield Task(name, index, f"{pod}-{index}", address)

    def job_name(self, role: RoleName) -> str:
        """The name of the role's Job. With an index behind it, it is a pod's hostname."""
        name = object_names.job_name(self.run, role)
        return f"{name}-0" if self.jobset else name

    def address(self, role: RoleName, index: int | str) -> str:
        """`host:port`; with INDEX for the index, an address that Kubernetes completes in each pod.

        Relative to the namespace, the first of a pod's search domains: it is found by the first query of each
        kind (A, AAAA). With the namespace and `svc` behind it, it would be found in the third domain only,
        since `ndots:5` has a name of fewer dots tried in all of them first:
        https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
        """
        return f"{self._host(role, index)}:{self.role(role).port}"

    def _host(self, role: RoleName, index: int | str) -> str:
        return f"{self.job_name(role)}-{index}.{self.run}"

    def metrics_address(self, role: RoleName, index: int | str) -> str | None:
        """Where a task serves metrics, as `address` has it; None where it serves none."""
        monitoring = self.cluster.spec.monitoring
        if monitoring is None or not self.role(role).uses_runtime:
            return None
        return f"{self._host(role, index)}:{monitoring.port}"

    @property
    def elastic(self) -> ElasticWorkers | None:
        """How many workers there may be; None where the run is not elastic."""
        workers = [role for role in self.roles if task_type(role.name) == "worker"]
        if not workers or workers[0].elastic is None:
            return None
        most, replicas = sum(each.max_replicas for each in workers), sum(each.replicas for each in workers)
        return ElasticWorkers(workers[0].elastic.min, most, replicas)

    @property
    def first_extra_worker(self) -> int:
        """The number of the first worker that a queue admits by itself, 0 where there are none."""
        has_some = any(role.name == EXTRA_WORKER for role in self.roles)
        return self.role("worker").replicas if has_some else 0

    @cached_property
    def addresses(self) -> dict[RoleName, list[str]]:
        """Of each role's tasks, in the order of `roles`; also of those that elastic workers may get."""
        addresses = {}
        for role in self.roles:
            before, _, after = self.address(role.name, INDEX).partition(INDEX)
            addresses[role.name] = [f"{before}{index}{after}" for index in range(role.max_replicas)]
        return addresses

    @property
    def metrics_addresses(self) -> list[str]:
        """Of all tasks that serve metrics, also of those that elastic workers may get."""
        tasks = ((role.name, index) for role in self.roles for index in range(role.max_replicas))
        return [address for task in tasks if (address := self.metrics_address(*task)) is not None]

    @cached_property
    def training_cluster(self) -> dict[str, list[str]]:
        """The value of TF_CONFIG's "cluster" with everyone in it: `{role: [address]}`.

        Never the evaluator: listed, it hangs TensorFlow's coordinator. Nor the data service, which is no part
        of the cluster.
        """
        cluster: dict[str, list[str]] = {}
        for name, addresses in self.addresses.items():
            if name not in BESIDE:
                cluster.setdefault(self._task_type(name), []).extend(addresses)
        return cluster

    def _task_type(self, role: RoleName) -> str:
        """What TF_CONFIG calls the role."""
        return (role == "chief" and self.cluster.spec.strategy_options.chief_task_type) or task_type(role)

    @property
    def alone(self) -> bool:
        """Whether one task trains by itself. It gets no TF_CONFIG: TensorFlow would wait for others.

        A TFJob's evaluator counts, although it does not train: the script may expect a TF_CONFIG then.
        """
        if roles.is_custom(self.cluster.spec):
            return sum(role.replicas for role in self.roles) == 1
        return sum(len(addresses) for addresses in self.training_cluster.values()) == 1

    def sees_all(self, role: RoleName) -> bool:
        """Whether the role's tasks get the full list. A worker or ps of a coordinator needs only itself:
        the coordinator sends it the rest. Collective strategies need everyone.
        """
        spec = self.cluster.spec
        if role == "chief" or not STRATEGIES[spec.strategy].may_be_sparse:
            return True
        sparse = spec.sparse_cluster_spec
        if sparse is None:
            sparse = self.role(role).uses_runtime
        return not sparse

    def tf_config(self, role: RoleName) -> str | None:
        """The role's TF_CONFIG as compact JSON, with INDEX where the pod's index belongs.

        None where a task needs none. One text for all tasks of the role: Kubernetes makes each pod's own.
        """
        custom = roles.is_custom(self.cluster.spec)
        if role == "evaluator":
            return _tf_config({"evaluator": [self.address("evaluator", 0)]}, role, cloud=custom)
        if role in DATA_ROLES:
            return _tf_config({role: {INDEX: self.address(role, INDEX)}}, role)
        if self.alone:
            return None
        if self.sees_all(role):
            # The runtime of an extra worker computes its number among all workers.
            name = role if role == EXTRA_WORKER else self._task_type(role)
            return _tf_config(self.training_cluster, name, cloud=custom)
        itself: dict[str, Any] = {role: {INDEX: self.address(role, INDEX)}}
        if custom and role == "worker" and "ps" in self.training_cluster:
            itself["ps"] = self.training_cluster["ps"]
        return _tf_config(itself, role)

    @cached_property
    def file_roles(self) -> frozenset[RoleName]:
        """Roles of the runtime whose TF_CONFIG is too long for the environment; they read the cluster from a
        file.
        """
        return frozenset(
            role.name
            for role in self.roles
            if role.uses_runtime and self.tf_config_bytes(role.name) > FILE_BYTES
        )

    def tf_config_bytes(self, role: RoleName) -> int:
        """How long the role's TF_CONFIG is."""
        return len((self.tf_config(role) or "").encode())


def _tf_config(cluster: Any, task_type: str, *, cloud: bool = False) -> str:
    # The index is a number in TensorFlow's JSON, so its reference stands outside the quotes.
    members = json.dumps(cluster, separators=(",", ":"))
    # Without it TensorFlow 1.3 and older train alone. The training-operator still sets it.
    environment = ',"environment":"cloud"' if cloud else ""
    return f'{{"cluster":{members},"task":{{"type":"{task_type}","index":{INDEX}}}{environment}}}'


def templates(spec: Spec) -> tuple[tuple[str, RoleTemplate | None], ...]:
    """What the file says of roles, each with the name of its field; None where it says nothing."""
    given = ((name, getattr(spec, name)) for name in (*ROLES, "template"))
    return (*given, ("dataService", spec.data_service))


def build(cluster: TrainingCluster, *, jobset: bool = False) -> Topology:
    """The cluster's topology, with each role resolved.

    The cluster should have passed `launcher.validation.rules`. Otherwise only the roles can be read, and
    there may be none.
    """
    spec = cluster.spec
    queued = roles.gang(spec) == "Kueue"
    resolved: list[ResolvedRole] = []
    for name, role in _present(spec, fixed=jobset or queued):
        each = roles.resolve(spec, name, role)
        parts = queued and not jobset and name == "worker" and each.has_extra
        resolved += roles.parted(each) if parts else [each]
    return Topology(cluster, tuple(resolved), jobset)


def _present(spec: Spec, *, fixed: bool) -> tuple[tuple[RoleName, Role], ...]:
    """The roles with at least one task, in the order of ROLES, and those of the data service. A chief is
    added if no other role leads. An evaluator and a data service are left out unless the run trains. `fixed`:
    the number of pods cannot change.
    """
    given = {name: role for name in ROLES if (role := getattr(spec, name)) is not None and role.replicas > 0}
    if spec.mode != "Train":
        given.pop("evaluator", None)
    if STRATEGIES[spec.strategy].kind is Kind.COORDINATED:
        given.setdefault("chief", Role.model_construct())
    elif not roles.is_custom(spec) and not given.keys() & {"chief", "worker"}:
        given["chief"] = Role.model_construct()
    service = spec.data_service if spec.mode == "Train" else None
    data = roles.of_data_service(service, fixed=fixed) if service is not None else ()
    return (*((name, given[name]) for name in ROLES if name in given), *data)
