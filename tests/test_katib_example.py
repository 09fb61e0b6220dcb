"""examples/sweep/katib.yaml without Katib: what it makes of a trial is what the launcher takes."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import kubernetes_validate
import yaml

from launcher.backends.base import Plan
from launcher.backends.kubernetes.preflight import needed_rights
from launcher.cli import from_file
from launcher.cli.parser import parser
from launcher.task_records import record_sentences
from tests.paths import ROOT
from worker.contract.records import Evaluation, Progress

SWEEP = ROOT / "examples" / "sweep"
EXPERIMENT, ACCOUNT, BINDING, ROLE = yaml.safe_load_all((SWEEP / "katib.yaml").read_text())
SPEC = EXPERIMENT["spec"]
TEMPLATE = SPEC["trialTemplate"]
TRIAL = "sweep-xqzwk74j"
# Values as Katib's tpe gave them.
ASSIGNED = {"units": "22", "learningRate": "1.0067785877989299e-05"}


def trial_job() -> dict[str, Any]:
    """The object that Katib makes for a trial: it replaces placeholders in the text of the template."""
    text = json.dumps(TEMPLATE["trialSpec"])
    for parameter in TEMPLATE["trialParameters"]:
        reference = parameter["reference"]
        value = TRIAL if reference == "${trialSpec.Name}" else ASSIGNED[reference]
        assert f"${{trialParameters.{parameter['name']}}}" in text
        text = text.replace(f"${{trialParameters.{parameter['name']}}}", value)
    assert "${" not in text
    job: dict[str, Any] = json.loads(text)
    job["metadata"] = {"name": TRIAL, "namespace": "team-a"}
    return job


def submitting_pod() -> dict[str, Any]:
    """The template of the pods that submit a trial's run."""
    template: dict[str, Any] = trial_job()["spec"]["template"]
    return template


def submitted_run() -> tuple[list[str], Plan]:
    """The owners of a trial's run, and the run."""
    (container,) = submitting_pod()["spec"]["containers"]
    command = container["command"]
    assert command[:3] == ["python", "-m", "launcher"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "sweep")
    arguments = [each.replace(mount["mountPath"] + "/", f"{SWEEP}/") for each in command[3:]]
    options = parser().parse_args(arguments)
    (plan,) = from_file.plans(options, "team-a")
    return options.owned_by, plan


def test_the_strict_schemas_take_the_objects() -> None:
    for item in (trial_job(), ACCOUNT, BINDING, ROLE):
        for version in ("1.33", "1.34", "1.35", "1.36"):
            kubernetes_validate.validate(item, version, strict=True)


def test_a_trial_owns_a_run_of_its_name_with_its_parameters() -> None:
    owners, plan = submitted_run()
    assert owners == [f"Job/{TRIAL}"]
    assert plan.run == TRIAL
    (config,) = (item for item in plan.objects if item["metadata"]["name"] == f"{TRIAL}-config")
    parameters = json.loads(config["data"]["run.json"])["parameters"]
    assert parameters["units"] == 22
    assert parameters["learningRate"] == 1.0067785877989299e-05
    assert {parameter["name"] for parameter in SPEC["parameters"]} == ASSIGNED.keys() <= parameters.keys()


def test_katib_finds_its_container_in_every_pod_and_collects_from_one_alone() -> None:
    """Katib's webhook refuses a pod that belongs to a trial and has no container of the name."""
    _, plan = submitted_run()
    pods = [item["spec"]["template"] for item in plan.objects if item["kind"] == "Job"]
    assert len(pods) == 2
    for pod in (submitting_pod(), *pods):
        assert TEMPLATE["primaryContainerName"] in [each["name"] for each in pod["spec"]["containers"]]
    labels = TEMPLATE["primaryPodLabels"].items()
    assert labels <= submitting_pod()["metadata"]["labels"].items()
    assert not any(labels <= pod["metadata"]["labels"].items() for pod in pods)


def test_the_command_stays_the_same_in_a_shell() -> None:
    """Katib joins the words with spaces, for `sh -c`."""
    command = submitting_pod()["spec"]["containers"][0]["command"]
    assert shlex.split(" ".join(command)) == command


def test_the_filter_matches_the_evaluators_values_and_no_others() -> None:
    (pattern,) = SPEC["metricsCollectorSpec"]["source"]["filter"]["metricsFormat"]
    metric = SPEC["objective"]["objectiveMetricName"]
    for value, printed in ((0.84231, "0.8423"), (0.00005, "5.000e-05"), (1, "1.0000")):
        scores = {"loss": 0.4312, metric: value, "top_5_accuracy": 0.9}
        line = f"   61.4 s  evaluator  {record_sentences.evaluation(Evaluation('ckpt-2', 2, scores))}"
        assert re.findall(pattern, line) == [(metric, printed)]
    trained = Progress(1, 8, 90, 90, 4.49, 1.3493, {metric: 0.5802}, True)
    assert not re.findall(pattern, f"   45.2 s  worker 0   {record_sentences.progress(trained)}")


def test_its_rights_are_those_that_a_run_needs() -> None:
    assert allowed(ROLE["rules"]) == allowed(needed_rights.rules(()))
    assert BINDING["roleRef"]["name"] == ROLE["metadata"]["name"]
    accounts = [ACCOUNT["metadata"]["name"], submitting_pod()["spec"]["serviceAccountName"]]
    assert accounts == [BINDING["subjects"][0]["name"]] * 2


def allowed(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """What rules allow, one by one."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
