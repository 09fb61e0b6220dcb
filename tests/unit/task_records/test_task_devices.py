"""The texts about the devices of a run's tasks."""

from __future__ import annotations

import dataclasses
import io
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from launcher import sentences
from launcher.backends.base import EVERYONE, LogLine
from launcher.backends.local import following
from launcher.backends.local.store import RunDirectory
from launcher.cli import console, live_view
from launcher.object_names import ROLE_LABEL
from launcher.plan import topology
from launcher.report.page import page
from launcher.report.page_content import report
from launcher.status import ATTEMPT_ANNOTATION, INDEX_KEY
from launcher.task_records import presentation, task_devices
from launcher.validation import loader
from tests.unit.cli.test_console import _Nowhere
from tests.unit.histories import history, pod, says
from worker.contract.records import Event, Record

CPU = {"type": "CPU", "name": "AMD EPYC 7B13", "count": 1}
GPU = {"type": "GPU", "name": "NVIDIA A100", "count": 2}
ASKED = "nvidia.com/gpu: 2"
RED = "\x1b[31m"


def said(role: str, index: int = 0, **changes: Any) -> LogLine:
    fields = {"replicas": 1, "tasks": 1, "devices": [CPU], "tensorflow": "2.21.0", "lacking": "", **changes}
    return says(role, index, 0, 3.0, Event.DEVICES, **fields)


def words(line: LogLine) -> str:
    assert line.record is not None
    return presentation.describe(line.record)


def test_words() -> None:
    assert words(said("chief")) == "Number of devices: 1 (1 CPU, AMD EPYC 7B13), TensorFlow 2.21.0"
    travels = said("chief", runtime="0.1.0 that travels with the run")
    assert words(travels).endswith("TensorFlow 2.21.0, runtime 0.1.0 that travels with the run")
    assert words(said("worker", replicas=4, tasks=2, devices=[GPU, CPU])) == (
        "Number of devices: 4 in 2 tasks (here 2 GPU, NVIDIA A100), TensorFlow 2.21.0"
    )
    assert words(said("ps", replicas=0, tasks=0, lacking=ASKED)) == (
        "TensorFlow 2.21.0 on 1 CPU, AMD EPYC 7B13; no GPU is seen, nvidia.com/gpu: 2 was asked for"
    )


def test_the_first_trainer_is_told_and_one_of_those_that_lack_gpus() -> None:
    pods = [pod("chief"), *(pod("worker", index) for index in range(3))]
    lines = [said("chief"), said("worker"), *(said("worker", index, lacking=ASKED) for index in (1, 2))]
    status = history(pods, lines).status
    news = sentences.Narrator().news(status, lines)
    announcements = [(each.who, each.bad) for each in news if "TensorFlow" in each.text]
    assert announcements == [("chief", False), ("worker 1", True)]
    rows = task_devices.of_run(status)
    assert [(name, bad) for name, _, bad in rows] == [("devices", False), ("devices, worker", True)]
    assert rows[1][1].endswith(" was asked for (and 1 tasks more)")


@pytest.mark.parametrize(
    ("when", "generation", "shown"),
    [
        (4.0, None, "6 in 3 tasks"),
        (2.0, None, "4 in 2 tasks"),  # a coordinator that has started since
        (4.0, 1, "4 in 2 tasks"),  # all tasks of a generation say theirs anew
    ],
)
def test_workers_that_joined_later_are_counted(when: float, generation: int | None, shown: str) -> None:
    members = {"workers": [0, 1, 3], "joined": [1], "left": [], "reason": "", "generation": generation}
    lines = [
        said("chief", replicas=4, tasks=2, devices=[GPU, CPU]),
        says("chief", 0, 0, when, Event.MEMBERSHIP, **members),
    ]
    ((_, text, _),) = task_devices.of_run(history([pod("chief")], lines).status)
    assert text.startswith(f"Number of devices: {shown} (here 2 GPU, NVIDIA A100)")


@pytest.mark.parametrize("ended", [True, False])
def test_status_and_summary_have_it_in_red_where_gpus_lack(ended: bool) -> None:
    status = history([pod("chief")], [said("chief", lacking=ASKED)], finished=9.0 if ended else None).status
    out = Console(file=(file := io.StringIO()), force_terminal=True, color_system="standard", width=200)
    console.show_status(_Nowhere(), status, out)  # type: ignore[arg-type]
    first = "1 (1 CPU, AMD EPYC 7B13)" if ended else "Number of devices: 1 (1 CPU, AMD EPYC 7B13)"
    assert f"{RED}{first}" in file.getvalue()
    fine = dataclasses.replace(status, records=history([pod("chief")], [said("chief")]).status.records)
    out = Console(file=(file := io.StringIO()), force_terminal=True, color_system="standard", width=200)
    console.show_status(_Nowhere(), fine, out)  # type: ignore[arg-type]
    assert first in file.getvalue()
    assert RED not in file.getvalue()


def test_the_live_output_has_it_in_red() -> None:
    file = io.StringIO()
    out = Console(file=file, force_terminal=True, color_system="standard", width=200)
    view = live_view.View(out)
    line = said("chief", lacking=ASKED)
    view.show(history([pod("chief")], [line]).status, [line])
    assert f"{RED}Number of devices: 1" in file.getvalue()


def test_the_report() -> None:
    pods = [pod("chief", finished=9, exit_code=0), pod("worker", finished=9, exit_code=0)]
    run_report = report(
        history(pods, [said("chief"), said("worker", lacking=ASKED)], finished=9), timezone.utc
    )
    assert "Number of devices: 1 (1 CPU, AMD EPYC 7B13), TensorFlow 2.21.0" in run_report.facts
    assert [trouble.partition(" (")[0] for trouble in run_report.troubles] == ["Number of devices: 1"]
    assert [event.kind for event in run_report.events if "TensorFlow" in event.text] == ["plain", "bad"]
    assert "nvidia.com/gpu: 2 was asked for" in page(run_report)


def test_a_long_log_is_looked_through_at_its_beginning_too(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "default", "mnist")
    log = directory.log("mnist-chief-0", 0)
    log.parent.mkdir(parents=True)
    early = Record(
        Event.EVALUATION, "mnist-chief-0", 1.0, {"checkpoint": "ckpt-1", "epoch": 1, "metrics": {}}
    )
    record = said("chief").text
    log.write_text(f"{early.line()}\n{record}\n" + "x" * 100_000 + "\n" * 300_000)
    state = {
        "pods": [
            {
                "metadata": {
                    "uid": "1",
                    "name": "mnist-chief-0-abcde",
                    "labels": {ROLE_LABEL: "chief", INDEX_KEY: "0"},
                    "annotations": {ATTEMPT_ANNOTATION: "0"},
                },
                "spec": {"hostname": "mnist-chief-0"},
            }
        ]
    }
    logs = following.Logs(directory, EVERYONE, most=following._TAIL_BYTES)
    logs.update(state)
    assert [line.text for line in logs.beginnings()] == [record], "what may be out of date is not taken"
    whole = following.Logs(directory, EVERYONE)
    whole.update(state)
    assert not whole.beginnings()


CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: gpus}
spec:
  strategy: ParameterServer
  program: {entrypoint: "a:B"}
  modelDir: gs://bucket/gpus
  template: {allowCpu: true, resources: {nvidia.com/gpu: 1}}
  chief: {allowCpu: false, resources: {cpu: 1}}
  worker:
    resources: {requests: {cpu: 1}, limits: {amd.com/gpu: 2, rdma/hca: 1}}
  ps:
    podTemplate: {spec: {containers: [{name: tensorflow, resources: {limits: {nvidia.com/gpu: 0}}}]}}
  evaluator:
    resources: {cpu: 1}
    podTemplate: {spec: {containers: [{name: tensorflow, resources: {limits: {nvidia.com/mig-1g.5gb: 3}}}]}}
"""


def test_what_a_pod_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    (loaded,) = loader.load(str(path))
    asked = {role.name: role.gpus for role in topology.build(loaded.cluster).roles}
    assert asked == {
        "chief": "",
        "worker": "amd.com/gpu: 2",
        "ps": "",
        "evaluator": "nvidia.com/mig-1g.5gb: 3",
    }
    from launcher.plan import pods

    config = pods.run_config(topology.build(loaded.cluster), "")
    assert config.gpus == {"worker": "amd.com/gpu: 2", "evaluator": "nvidia.com/mig-1g.5gb: 3"}
    assert config.allow_cpu == ["worker", "ps", "evaluator"]
