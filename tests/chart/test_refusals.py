"""Wrong values give one clear message each, before any object is made."""

from __future__ import annotations

import pytest

from tests.chart.helm import CHART, Helm

ONE_DEVICE = CHART / "ci" / "one-device-values.yaml"
LONG = "a" * 60

WRONG = {
    "a field that there is not": (
        ["--set", "spec.chief.replica=3"],
        "at '/spec/chief': additional properties 'replica' not allowed",
    ),
    "a value that there is not": (
        ["--set", "foo=1"],
        "at '': additional properties 'foo' not allowed",
    ),
    "a part of a value that there is not": (
        ["--set", "image.tga=1"],
        "at '/image': additional properties 'tga' not allowed",
    ),
    "a bare OFF": (
        ["--set-json", "spec.strategyOptions.autoShard=false"],
        "at '/spec/strategyOptions/autoShard': got boolean, want string",
    ),
    "a number in the environment": (
        ["--set-json", 'spec.template.env=[{"name": "A", "value": 1}]'],
        "at '/spec/template/env/0/value': got number, want null or string",
    ),
    "text for a number": (
        ["--set", "spec.runPolicy.backoffLimit=many"],
        "at '/spec/runPolicy/backoffLimit': got string, want null or integer",
    ),
    "resources": (
        ["--set-json", 'spec.chief.resources={"cpu": true}'],
        "at '/spec/chief/resources/cpu': got boolean, want number or integer or string",
    ),
    "a strategy that there is not": (
        ["--set", "spec.strategy=Mirored"],
        (
            "at '/spec/strategy': value must be one of 'OneDevice', 'Mirrored', 'MultiWorkerMirrored', "
            "'ParameterServer', 'CentralStorage', 'TPU', 'Custom'"
        ),
    ),
    "a TFJob's version with a cluster.yaml": (
        ["--set", "apiVersion=kubeflow.org/v1"],
        "at '/apiVersion': value must be 'launcher/v1alpha1'",
    ),
    "another kind": (
        ["--set", "kind=MPIJob"],
        "at '/kind': value must be one of 'TrainingCluster', 'TFJob'",
    ),
    "another namespace": (
        ["--set", "metadata.namespace=other"],
        (
            "metadata.namespace is other, and the release's namespace is vision: leave it out of the "
            "file, or install with `--namespace other`"
        ),
    ),
    "a name that is none": (
        ["--set", "metadata.name=My_Run"],
        (
            "metadata.name, or the release's name in its place, is My_Run: expected lower-case letters, "
            "digits and '-', beginning with a letter, at most 63 characters"
        ),
    ),
    "a name that is too long for a pod": (
        ["--set", f"metadata.name={LONG}", "--set", "spec.chief.replicas=1"],
        (
            f"the pod {LONG}-chief-0 would have a name of 68 characters, and a hostname has at most 63: "
            f"shorten metadata.name, which is {LONG}, by 5"
        ),
    ),
    "a source that there is not": (
        ["--set-json", 'spec.program.source={"gti": {}}'],
        "at '/spec/program/source': additional properties 'gti' not allowed",
    ),
    "a program that is missing": (
        ["--set", "spec.program.source=./train.py"],
        (
            "spec.program.source is ./train.py, which is not among program.files (line.py): give it with "
            "`--set-file 'program.files.train\\.py=./train.py'`, or in program.existingConfigMap"
        ),
    ),
    "a script that is missing": (
        ["--set", "spec.program.source=null,spec.program.entrypoint=null,spec.program.script=./train.py"],
        (
            "spec.program.script is ./train.py, which is not among program.files (line.py): give it with "
            "`--set-file 'program.files.train\\.py=./train.py'`, or in program.existingConfigMap"
        ),
    ),
    "no program at all": (
        ["--set", "program.files=null"],
        (
            "spec.program.source is ./line.py, which is not among program.files (there are none): give "
            "it with `--set-file 'program.files.line\\.py=./line.py'`, or in program.existingConfigMap"
        ),
    ),
    "a program elsewhere": (
        ["--set", "spec.program.source=../line.py"],
        (
            "spec.program.source is ../line.py: expected a path below the cluster.yaml's folder, where "
            "the chart puts program.files"
        ),
    ),
    "a file elsewhere": (
        ["--set-json", 'program.files={"a/../../x": ""}'],
        (
            "program.files has a/../../x: expected a path below the cluster.yaml's folder, such as train.py "
            "or src/train.py"
        ),
    ),
    "two programs": (
        ["--set", "program.existingConfigMap=code"],
        "program.files and program.existingConfigMap are both given: give one",
    ),
    "a program that nobody names": (
        ["--set", "spec.program.source=null"],
        "program.files is given, and spec.program.source does not name it: such as `source: ./train.py`",
    ),
    "no account": (
        ["--set", "serviceAccount.create=false"],
        "serviceAccount.create is false: name the account that is to be used, in serviceAccount.name",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusal(helm: Helm, case: str) -> None:
    arguments, message = WRONG[case]
    refusal = helm.refusal("-f", ONE_DEVICE, *arguments)
    assert refusal == message


def test_no_file(helm: Helm) -> None:
    message = "spec is missing: give your cluster.yaml, as in `helm install NAME tf-launcher -f cluster.yaml`"
    assert helm.refusal() == message


def test_a_long_release_name(helm: Helm) -> None:
    """The limit is Helm's own."""
    message = helm.refusal("-f", ONE_DEVICE, release=LONG)
    assert "the length must not be longer than 53" in message
