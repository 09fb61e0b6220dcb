"""The rendered chart: the launcher Job gets the exact file, and no value changes the structure around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from launcher import plan_of_file
from launcher.backends.kubernetes.preflight import needed_rights, requirements
from launcher.backends.kubernetes.preflight.versions import OLDEST
from launcher.config import yaml_parser
from launcher.json_in_yaml import quoted
from launcher.plan.program_files import ProgramFiles
from launcher.validation import loader, source
from tests.chart.helm import (
    CHART,
    CI_VALUES,
    EXAMPLES,
    ROOT,
    Helm,
    command,
    content,
    document,
    one,
    sources,
    unpack,
)
from tests.paths import SPECS

NAMESPACED = {"ConfigMap", "Job", "Pod", "Role", "RoleBinding", "ServiceAccount"}
TFJOBS = sorted((ROOT / "tests" / "specs" / "valid").glob("tfjob-*.yaml"))
ONE_DEVICE = CHART / "ci" / "one-device-values.yaml"
MANIFESTS = ROOT / "manifests" / "controller"


@pytest.mark.parametrize("values", [None, *CI_VALUES], ids=lambda path: path.stem if path else "defaults")
def test_lint(helm: Helm, values: Path | None) -> None:
    done = helm.run("lint", "--strict", CHART, *(("-f", values) if values else ()))
    assert done.code == 0, done.out + done.error
    assert "0 chart(s) failed" in done.out + done.error


def test_there_is_one_for_each_strategy() -> None:
    strategies = {yaml.safe_load(path.read_text())["spec"]["strategy"] for path in CI_VALUES}
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert strategies == set(schema["$defs"]["Spec"]["properties"]["strategy"]["enum"])
    assert len(CI_VALUES) == len(strategies)


@pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.stem)
def test_objects(helm: Helm, values: Path) -> None:
    """The objects are valid by Kubernetes' own schemas, have no unknown fields, and are in the release's
    namespace.
    """
    objects = helm.template("-f", values)
    for item in objects:
        kubernetes_validate.validate(item, "1.36", strict=True)
        assert item["metadata"]["namespace"] == "vision"
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "mnist"
    assert {item["kind"] for item in objects} == NAMESPACED
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("cluster", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_launcher_gets_the_file(helm: Helm, cluster: Path, tmp_path: Path) -> None:
    """The values equal the file as the launcher itself reads it; so does the program."""
    objects = helm.template("-f", cluster, *sources(cluster))
    (read,) = yaml_parser.parse(cluster.read_text(), str(cluster))
    assert document(objects) == read.value
    (there,), (here,) = loader.load(str(cluster)), loader.load(str(unpack(objects, tmp_path)))
    assert here.cluster == there.cluster
    assert source.read(here) == source.read(there)


@pytest.mark.parametrize("tfjob", TFJOBS, ids=lambda path: path.stem)
def test_the_launcher_gets_a_tfjob(helm: Helm, tfjob: Path, tmp_path: Path) -> None:
    (there,) = loader.load(str(tfjob))
    space = there.cluster.metadata.namespace
    objects = helm.template("-f", tfjob, "--namespace", space)
    (here,) = loader.load(str(unpack(objects, tmp_path)))
    assert here.conversion is not None
    assert here.cluster == there.cluster


def test_folders(helm: Helm, tmp_path: Path) -> None:
    """A program of several files arrives unchanged, byte for byte."""
    files = {
        "src/mine.py": "class Mine: ...\n",
        "src/inner/data.txt": 'a: "b"\r\n\n# {{ c }}\n',
        "not.py": "x",
    }
    values = {
        "spec": {
            "strategy": "OneDevice",
            "program": {"source": "./src", "entrypoint": "mine:Mine"},
        },
        "program": {"files": files},
    }
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    folder = tmp_path / "pod"
    folder.mkdir()
    path = unpack(helm.template("-f", tmp_path / "values.yaml"), folder)
    (loaded,) = loader.load(str(path))
    assert loaded.cluster.metadata.name == "mnist", "the release's name, where the file has none"
    assert source.read(loaded) == ProgramFiles(
        {name.removeprefix("src/"): text.encode() for name, text in files.items() if name != "not.py"}
    )


def test_a_source_that_is_fetched(helm: Helm, tmp_path: Path) -> None:
    file = SPECS / "valid" / "source-of-git.yaml"
    (there,) = loader.load(str(file))
    (here,) = loader.load(str(unpack(helm.template("-f", file), tmp_path)))
    assert here.cluster == there.cluster


def test_an_existing_config_map(helm: Helm) -> None:
    arguments = ["--set", "program.files=null", "--set", "program.existingConfigMap=code"]
    objects = helm.template("-f", ONE_DEVICE, *arguments)
    assert "binaryData" not in one(objects, "ConfigMap")
    volumes = one(objects, "Job")["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["projected"]["sources"] == [
        {
            "configMap": {
                "name": "mnist-tf-launcher",
                "items": [{"key": "cluster.json", "path": "cluster.json"}],
            }
        },
        {"configMap": {"name": "code"}},
    ]
    assert command(objects)[1] == "/etc/tf-launcher/cluster.json"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
# Helm has no exact integers above 2**53; see below.
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-(2**53), 2**53)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(parameters=st.dictionaries(TEXT, ANYTHING, max_size=5), text=TEXT)
def test_any_value(
    helm: Helm, tmp_path_factory: pytest.TempPathFactory, parameters: dict[str, Any], text: str
) -> None:
    """The launcher reads the same value from the release as from the file; and the objects keep their
    structure.
    """
    values = yaml.safe_load(ONE_DEVICE.read_text())
    values["spec"]["program"]["parameters"] = parameters
    values["metadata"]["annotations"] = {"note": text}
    values["program"]["files"]["line.py"] += text
    values |= {"podAnnotations": {"note": text}, "commonAnnotations": {"note": text}}
    directory = tmp_path_factory.mktemp("any")
    # JSON that YAML reads as the same.
    (directory / "values.yaml").write_text(quoted(values))
    objects = helm.template("-f", directory / "values.yaml")
    config = one(objects, "ConfigMap")
    (read,) = yaml_parser.parse(config["data"]["cluster.json"], "cluster.json")
    # Helm keeps a mapping's null where the chart has no default for the key.
    assert read.value == {key: values[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    assert content(config, "f0").decode() == values["program"]["files"]["line.py"]
    plain = helm.template("-f", ONE_DEVICE)
    # Helm's order of a release's objects and tests changes from call to call.
    shapes, plain_shapes = ({item["kind"]: _shape(item) for item in each} for each in (objects, plain))
    assert shapes == plain_shapes
    assert len(objects) == len(plain) == len(shapes)
    assert {item["metadata"]["annotations"]["note"] for item in objects} == {text}


def _shape(item: Any) -> Any:
    """Returns the names of all nested fields, without those that the values above add."""
    if isinstance(item, dict):
        return {key: _shape(value) for key, value in item.items() if key not in ("annotations", "name")}
    return [_shape(each) for each in item] if isinstance(item, list) else None


# The value in the file, helm's form of it, and the same for the launcher; see the chart's README.
SAME: dict[str, Any] = {
    "86400000": 86400000,
    "9007199254740992": 2**53,
    "0.001": 0.001,
    "1e-7": 1e-7,
    "1.0": 1,
    "0x10": 16,
    "0o10": 8,
    "2026-11-21": "2026-11-21",
    "1:30": "1:30",
    "null": None,
    '"off"': "off",
    '"\\x7f\\u0085\\u2028{{ .Release.Name }}"': "\x7f\u0085\u2028{{ .Release.Name }}",
}
OTHER: dict[str, tuple[Any, Any]] = {
    "off": (False, "off"),
    "yes": (True, "yes"),
    "n": (False, "n"),
    "9007199254740993": (2**53, 2**53 + 1),
}


def test_what_helm_reads_otherwise(helm: Helm, tmp_path: Path) -> None:
    texts = [*SAME, *OTHER]
    lines = "".join(f"      p{index}: {text}\n" for index, text in enumerate(texts))
    (tmp_path / "values.yaml").write_text(f"spec:\n  program:\n    parameters:\n{lines}")
    got = document(helm.template("-f", ONE_DEVICE, "-f", tmp_path / "values.yaml"))
    parameters = [got["spec"]["program"]["parameters"][f"p{index}"] for index in range(len(texts))]
    assert dict(zip(texts, parameters, strict=True)) == SAME | {text: to for text, (to, _) in OTHER.items()}
    for text, value in (SAME | {text: parsed for text, (_, parsed) in OTHER.items()}).items():
        (read,) = yaml_parser.parse(f"[{text}]", "text")
        assert read.value == [value]


def test_role(helm: Helm) -> None:
    """The Role has only the rights that the launcher needs."""
    objects = helm.template("-f", ONE_DEVICE)
    assert one(objects, "Role")["rules"] == needed_rights.RULES
    assert one(objects, "RoleBinding")["subjects"] == [
        {"kind": "ServiceAccount", "name": "mnist-tf-launcher", "namespace": "vision"}
    ]


@pytest.mark.parametrize("scheduling", ["gang=Volcano", "gang=Coscheduling", "queue=team-a"])
def test_role_for_a_gang(helm: Helm, scheduling: str) -> None:
    """The Role is what `doctor --role` prints for the same file, without rights for other gangs."""
    name, value = scheduling.split("=")
    file = SPECS / "valid" / "gpus.yaml"
    (loaded,) = loader.load(str(file), [f"spec.scheduling={{{name}: {value}}}"])
    (kind,) = [each.kind for each in requirements.needed(plan_of_file.plan(loaded).objects)]
    objects = helm.template("-f", ONE_DEVICE, "--set", f"spec.scheduling.{scheduling}")
    assert one(objects, "Role")["rules"] == needed_rights.rules([kind])


def test_role_for_a_tensorboard(helm: Helm) -> None:
    """The launcher creates it; users open the port-forward to it."""
    values = (
        "--set-json",
        "spec.tensorboard={}",
        "--set",
        "spec.modelDir=/model,spec.scheduling.gang=Volcano",
    )
    rules = one(helm.template("-f", ONE_DEVICE, *values), "Role")["rules"]
    kinds = ["PodGroup.scheduling.volcano.sh", needed_rights.TENSORBOARD]
    assert rules == [rule for rule in needed_rights.rules(kinds) if rule is not needed_rights.TUNNEL]


def test_role_for_a_pod_monitor(helm: Helm) -> None:
    asked = {"port": 9090, "from": [{"podSelector": {}}]}
    with_monitor = {**asked, "podMonitor": {}}
    for wanted, kinds in ((asked, ()), (with_monitor, (needed_rights.MONITOR,))):
        values = ("--set-json", f"spec.monitoring={json.dumps(wanted)}")
        assert one(helm.template("-f", ONE_DEVICE, *values), "Role")["rules"] == needed_rights.rules(kinds)


CONTROLLER = ("--set", "controller.enabled=true")


def test_the_controller(helm: Helm) -> None:
    """It is what `kubectl apply -k manifests/controller` makes, and no run is beside it."""
    objects = helm.template(*CONTROLLER)
    for item in objects:
        kubernetes_validate.validate(item, "1.36", strict=True)
        in_none = item["kind"] in ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding")
        assert item["metadata"].get("namespace") == (None if in_none else "vision")
        assert item["metadata"]["labels"]["app.kubernetes.io/component"] == "controller"
    mine = {path.stem: list(yaml.safe_load_all(path.read_text())) for path in MANIFESTS.glob("*.yaml")}
    theirs = [*mine["crd"], *mine["rights"], *mine["deployment"]]
    assert sorted(item["kind"] for item in objects) == sorted(item["kind"] for item in theirs)
    for kind in ("CustomResourceDefinition", "ClusterRole"):
        for part in {"spec", "rules"} & one(theirs, kind).keys():
            assert one(objects, kind)[part] == one(theirs, kind)[part]
    assert one(theirs, "ClusterRole")["rules"] == needed_rights.of_controller()
    assert one(objects, "Role")["rules"] == one(theirs, "Role")["rules"] == needed_rights.ELECTION
    pods = [one(each, "Deployment")["spec"]["template"]["spec"] for each in (objects, theirs)]
    for pod in pods:
        (container,) = pod["containers"]
        for name in ("image", "imagePullPolicy"):
            container.pop(name, None)
        pod.pop("serviceAccountName")
        (spread,) = pod["topologySpreadConstraints"]
        spread.pop("labelSelector")
    assert pods[0] == pods[1]


def test_the_controller_of_some_namespaces(helm: Helm) -> None:
    objects = helm.template(
        *CONTROLLER, "--set", "controller.namespaces={team-a,team-b},controller.crd=false"
    )
    assert {item["kind"] for item in objects} == {"Deployment", "Role", "RoleBinding", "ServiceAccount"}
    subject = {"kind": "ServiceAccount", "name": "mnist-tf-launcher-controller", "namespace": "vision"}
    rights = {item["metadata"]["namespace"]: item["rules"] for item in objects if item["kind"] == "Role"}
    assert rights == {
        "vision": needed_rights.ELECTION,
        "team-a": needed_rights.of_controller(),
        "team-b": needed_rights.of_controller(),
    }
    bindings = [item for item in objects if item["kind"] == "RoleBinding"]
    roles = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in objects if "rules" in item}
    assert {(each["metadata"]["namespace"], each["roleRef"]["name"]) for each in bindings} == roles
    assert all(each["subjects"] == [subject] for each in bindings)
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["controller", "--namespace", "team-a", "--namespace", "team-b"]


def test_a_controller_beside_a_run(helm: Helm) -> None:
    """The two have accounts of their own, unless they are to have one that is there."""
    objects = helm.template("-f", ONE_DEVICE, *CONTROLLER)
    accounts = {item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"}
    assert accounts == {"mnist-tf-launcher", "mnist-tf-launcher-controller"}
    options = ("--set", "rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine")
    objects = helm.template("-f", ONE_DEVICE, *CONTROLLER, *options)
    assert {item["kind"] for item in objects} == {
        "ConfigMap", "CustomResourceDefinition", "Deployment", "Job", "Pod",
    }  # fmt: skip
    for kind in ("Deployment", "Job"):
        assert one(objects, kind)["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_an_account_of_ones_own(helm: Helm) -> None:
    arguments = ["--set", "rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine"]
    objects = helm.template("-f", ONE_DEVICE, *arguments)
    assert {item["kind"] for item in objects} == {"ConfigMap", "Job", "Pod"}
    assert one(objects, "Job")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_names(helm: Helm) -> None:
    """Labels and pod names have at most 63 characters, whatever names are given."""
    long = "n" * 63
    for release, settings_ in (
        ("r" * 53, "controller.enabled=true"),
        ("r" * 53, f"nameOverride={long}"),
        ("mnist", f"fullnameOverride={long}"),
        ("a." + "r" * 50, ""),
    ):
        arguments = ["--set", settings_] if settings_ else []
        objects = helm.template("-f", ONE_DEVICE, *arguments, release=release)
        for item in objects:
            assert len(item["metadata"]["name"]) <= 63
            assert all(len(value) <= 63 for value in item["metadata"]["labels"].values())
    assert [item["metadata"]["name"] for item in helm.template("-f", ONE_DEVICE, release="tf-launcher-1")][
        :3
    ] == ["tf-launcher-1"] * 3


def test_labels(helm: Helm) -> None:
    """A label of the user's replaces none of the chart's."""
    key = "app\\.kubernetes\\.io/instance"
    arguments = ["--set", f"commonLabels.team=vision,commonLabels.{key}=x,podLabels.team=a,podLabels.{key}=x"]
    objects = helm.template("-f", ONE_DEVICE, *arguments)
    for item in objects:
        assert item["metadata"]["labels"]["team"] == "vision"
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "mnist"
    pod = one(objects, "Job")["spec"]["template"]["metadata"]["labels"]
    assert (pod["team"], pod["app.kubernetes.io/instance"]) == ("a", "mnist")


def test_another_job_for_another_run(helm: Helm) -> None:
    """The template of a Job is immutable."""

    def name(*arguments: str) -> str:
        item = one(helm.template("-f", ONE_DEVICE, *arguments), "Job")
        return str(item["metadata"]["name"])

    changed = {
        name("--set", setting)
        for setting in (
            "spec.program.parameters.epochs=9",
            "image.tag=other",
            "metadata.annotations.again=yes",
            "podLabels.a=b",
            "podAnnotations.a=b",
            "resources.limits.memory=1Gi",
        )
    }
    changed.add(name("--set-file", f"program.files.line\\.py={__file__}"))
    assert len(changed) == 7
    assert name() not in changed
    assert name() == name("--set", "commonLabels.a=b,backoffLimit=7,test.timeoutSeconds=9")


def test_the_oldest_kubernetes(helm: Helm) -> None:
    oldest = ".".join(map(str, OLDEST))
    for version in (f"{oldest}.0", f"{oldest}.4-gke.100", "1.36.2"):
        helm.template("-f", ONE_DEVICE, "--kube-version", version)
    message = helm.refusal("-f", ONE_DEVICE, "--kube-version", f"{OLDEST[0]}.{OLDEST[1] - 1}.9")
    assert f"chart requires kubeVersion: >={oldest}.0-0" in message
