"""Topology -> Kubernetes objects, through the templates in `manifests/`. The templates only print what
`launcher.plan.pods` has computed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from typing import Any

import jinja2
import yaml

from launcher import object_names
from launcher.config.spec import Storage
from launcher.errors import LauncherError
from launcher.json_in_yaml import quoted
from launcher.plan import gang_scheduling, jobset, pods, runtime_archive, storage, tensorboard
from launcher.plan.pods import Object
from launcher.plan.program_files import ProgramFiles
from launcher.plan.roles import ResolvedRole
from launcher.plan.template_cache import TemplateCache
from launcher.plan.topology import Topology
from worker.contract.task_names import in_names

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def render(topology: Topology, program: ProgramFiles | None = None, run_id: str = "") -> list[Object]:
    """Every object of the run, the primary Job or the JobSet first. The same arguments give the same objects.

    `program` is what `launcher.validation.source.read` gives. `run_id` tells one submission from the next. By
    default it is a digest of the file and the program, so that the same file is the same run.
    """
    run_id = run_id or _content_id(topology, program)
    common = {
        "run": topology.run,
        "namespace": topology.namespace,
        "labels": pods.labels(topology),
        "annotations": topology.cluster.metadata.annotations,
        "selector": pods.selector(topology),
    }
    jobs = [_job(topology, role, program, common) for role in topology.roles]
    if topology.jobset:
        objects = [_jobset(topology, jobs, common)]  # the JobSet's controller makes the Service
    else:
        objects = [*jobs, _print("service", **common, ports=pods.service_ports(topology))]
    objects.append(
        _print("configmap", **common, name=f"{topology.run}-config", data=_config(topology, run_id, program))
    )
    if program is not None and program.parts:
        names = (pods.part_name(topology.run, number) for number in range(len(program.parts)))
        objects += [_part_map(common, name, part) for name, part in zip(names, program.parts, strict=True)]
    elif program is not None:
        objects.append(_source_map(common, f"{topology.run}-source", program))
    if any(pods.needs_archive(role, program) for role in topology.roles):
        objects.append(_runtime_map(common, f"{topology.run}-runtime", program))
    monitored = pods.monitoring_plan(topology)
    objects.append(_print("networkpolicy", **common, monitoring=monitored))
    if monitored is not None and monitored.has_pod_monitor:
        objects.append(_print("podmonitor", **common, monitoring=monitored))
    if (board := topology.cluster.spec.tensorboard) is not None:
        planned = tensorboard.board_plan(topology, board)
        templates = ("deployment", "tensorboard-service", "tensorboard-networkpolicy")
        objects += [_print(template, **common, plan=planned) for template in templates]
    if (group := gang_scheduling.pod_group(topology)) is not None:
        objects.append(_print("podgroup", **common, group=group))
    if (claim := storage.place(topology).claim) is not None:
        wanted = topology.cluster.spec.storage or Storage.model_construct()
        objects.append(
            _print("claim", **common, name=claim, storage=wanted, reclaim=object_names.RECLAIM_ANNOTATION)
        )
    return objects


def _job(topology: Topology, role: ResolvedRole, program: ProgramFiles | None, common: Object) -> Object:
    plan = pods.job_plan(topology, role, program)
    job = _print("job", **{**common, "labels": plan.labels}, plan=plan)
    job["spec"]["template"] = role.patched(job["spec"]["template"])
    return job


def _jobset(topology: Topology, jobs: list[Object], common: Object) -> Object:
    primary = jobs[0]["metadata"]
    templates = [
        {
            "name": in_names(role.name),
            "metadata": {field: job["metadata"].get(field, {}) for field in ("labels", "annotations")},
            "spec": job["spec"],
        }
        for role, job in zip(topology.roles, jobs, strict=True)
    ]
    return _print(
        "jobset",
        **{
            **common,
            "labels": {**common["labels"], **gang_scheduling.queue_labels(topology.cluster.spec)},
            "annotations": primary["annotations"],
        },
        fields=jobset.policies(topology),
        jobs=templates,
    )


def _content_id(topology: Topology, program: ProgramFiles | None) -> str:
    spec = topology.cluster.spec
    # A suspended run is the same run.
    policy = spec.run_policy.model_copy(update={"suspend": False})
    whole = topology.cluster.model_copy(update={"spec": spec.model_copy(update={"run_policy": policy})})
    digest = hashlib.sha256(whole.model_dump_json(exclude_defaults=True).encode())
    for path, content in (program.files if program is not None else {}).items():
        # With their lengths, so that no two programs give the same bytes.
        digest.update(f"\n{len(path)} {path} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _config(topology: Topology, run_id: str, program: ProgramFiles | None) -> dict[str, str]:
    data = {pods.RUN_FILE: pods.run_config(topology, run_id, program).to_json()}
    if topology.file_roles:
        data[pods.CLUSTER_FILE] = json.dumps(topology.training_cluster, separators=(",", ":"))
    return data


def _source_map(common: Object, name: str, program: ProgramFiles) -> Object:
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for index, content in enumerate(program.files.values()):
        key = pods.source_key(index)
        try:
            text[key] = content.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode()
    return _print("configmap", **common, name=name, data=text, binary=binary)


def _part_map(common: Object, name: str, part: bytes) -> Object:
    binary = {pods.PART_KEY: base64.b64encode(part).decode()}
    return _print("configmap", **common, name=name, data={}, binary=binary)


def _runtime_map(common: Object, name: str, program: ProgramFiles | None) -> Object:
    binary = {runtime_archive.KEY: base64.b64encode(runtime_archive.packed(program)).decode()}
    return _print("configmap", **common, name=name, data={}, binary=binary)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - every scalar passes `quoted`; this is no HTML
        loader=jinja2.PackageLoader("manifests", package_path=""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        bytecode_cache=TemplateCache(),
    )
    # Jinja2's own tojson escapes for HTML, and leaves what YAML forbids.
    environment.filters["tojson"] = quoted
    return environment


def compile_templates() -> None:
    """Compiles every template into the cache, as an installation does with the modules."""
    environment = _environment()
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)


def _print(template: str, **values: Any) -> Object:
    try:
        text = _environment().get_template(f"{template}.yaml.j2").render(values)
        printed = yaml.load(text, _Loader)  # noqa: S506 - the safe one
    except (jinja2.TemplateError, yaml.YAMLError, TypeError) as error:
        # StrictUndefined with a filter raises TypeError.
        raise LauncherError(f"the template {template} does not print an object: {error}") from error
    if not isinstance(printed, dict):
        raise LauncherError(f"the template {template} does not print an object")
    return printed
