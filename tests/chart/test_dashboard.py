"""Grafana's dashboard: a ConfigMap that its sidecar finds, and what it shows is what tasks serve."""

from __future__ import annotations

import json
import os
import re
import time

from tests.chart.helm import CHART, Helm, one
from worker.contract.records import PARTS, Checkpoint, Devices, Evaluation, Progress
from worker.process import memory
from worker.supervisor.metrics import Metrics

DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())


def test_it_is_made_where_it_is_asked_for(helm: Helm) -> None:
    asked = ("--set", "dashboard.enabled=true", "--set", "dashboard.labels.team=ops")
    made = one(helm.template(*asked), "ConfigMap")
    assert made["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "ops"}.items()
    assert json.loads(made["data"]["tf-launcher.json"]) == DASHBOARD


def test_it_shows_what_is_served() -> None:
    metrics = Metrics({"run": "r", "role": "chief", "task": "r-chief-0"})
    for content in (
        Progress(1, 3, 40, 100, 12.5, 0.25, {"accuracy": 0.5}, epoch_end=False),
        Evaluation("ckpt-1", 1, {"loss": 0.75}),
        Checkpoint(1, 3, time.time(), 30.0),
        Devices(2, 2, (), "2.21.0", ""),
    ):
        metrics.hear(content)
    metrics.process = os.getpid()
    metrics.spend({"steps": 1, "examples": 1, **dict.fromkeys(PARTS, 1.0)})
    served = {f"{each.name}{'_total' * each.is_counter}" for each in metrics.families()}
    served |= {"tf_launcher_memory_limit_bytes"} if memory.of_container() is None else set()
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    expressions += [each.get("definition", "") for each in DASHBOARD["templating"]["list"]]
    asked = {name for text in expressions for name in re.findall(r"\btf_launcher_\w+", text)}
    assert asked <= served
