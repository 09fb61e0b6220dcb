"""What of a run lies in a bucket, and which tasks keep a copy of it."""

from __future__ import annotations

import re
from typing import Any, Final

from launcher.config.spec import RemoteSource, Spec, Storage
from launcher.plan.roles import ResolvedRole
from launcher.plan.topology import Topology
from worker.contract.environment import BUCKET_KEYS, BUCKET_SCHEME
from worker.contract.parameters import DATA_DIRECTORY
from worker.contract.task_names import DISPATCHER

# What TensorFlow takes for a URL; anything else it takes for a path.
_URL: Final = re.compile(r"([a-z][a-z0-9.]*)://([^/].*)")

Object = dict[str, Any]


def scheme(path: str | None) -> str | None:
    """The scheme of a URL; None of a path."""
    match = _URL.fullmatch(path or "")
    return match[1] if match else None


def mirrors(topology: Topology, role: ResolvedRole) -> bool:
    """Whether the runtime keeps a mirror of the model directory in the role's tasks, since TensorFlow cannot
    open its URL. Scripts see the URL as it is.
    """
    spec = topology.cluster.spec
    is_runtime = role.uses_runtime and not role.runs_script and spec.trains_program
    return is_runtime and role.touches_model_dir and scheme(spec.model_dir) == BUCKET_SCHEME


def prefetches(topology: Topology, role: ResolvedRole) -> bool:
    """Whether the runtime copies the program's data from a bucket in the role's tasks: in those that read
    them. Scripts see the URL as it is.
    """
    spec = topology.cluster.spec
    reads = role.uses_runtime and not role.runs_script and role.name not in ("ps", DISPATCHER)
    return reads and spec.trains_program and has_data(spec)


def has_data(spec: Spec) -> bool:
    """Whether `parameters.dataDir` is in a bucket."""
    given = spec.program.parameters.get(DATA_DIRECTORY) if spec.program is not None else None
    return isinstance(given, str) and scheme(given) == BUCKET_SCHEME


def has_source(spec: Spec) -> bool:
    """Whether the program's source is an archive in a bucket."""
    source = spec.program.source if spec.program is not None else None
    archive = source.archive if isinstance(source, RemoteSource) else None
    return archive is not None and scheme(archive.url) == BUCKET_SCHEME


def variables(topology: Topology) -> list[Object]:
    """The variables by which the libraries of S3 find the server and the credentials."""
    given = topology.cluster.spec.storage or Storage.model_construct()
    entries: list[Object] = []
    if given.endpoint is not None:
        entries.append({"name": "AWS_ENDPOINT_URL", "value": given.endpoint.replace("$", "$$")})
    if given.region is not None:
        entries.append({"name": "AWS_REGION", "value": given.region.replace("$", "$$")})
    for key in BUCKET_KEYS if given.secret_name is not None else ():
        reference: Object = {"name": given.secret_name, "key": key}
        if key == BUCKET_KEYS[-1]:
            reference["optional"] = True
        entries.append({"name": key, "valueFrom": {"secretKeyRef": reference}})
    return entries
