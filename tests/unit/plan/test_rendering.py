"""The objects of a run: they equal the golden files, whatever text a user gives, and at any size."""

from __future__ import annotations

import base64
import functools
import io
import json
import random
import re
import string
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.spec import TrainingCluster
from launcher.errors import SpecError
from launcher.json_in_yaml import quoted
from launcher.plan import object_size, rendering, serialization, topology
from launcher.plan.program_files import ProgramFiles
from launcher.validation import loader
from tests.paths import TESTS
from tests.unit.golden import text as golden_text
from worker.contract.run_config import RunConfig

VALID = sorted((TESTS / "specs" / "valid").glob("*.yaml"))
Object = dict[str, Any]


def objects(path: Path) -> list[Object]:
    (loaded,) = loader.load(str(path))
    return rendering.render(topology.build(loaded.cluster))


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_golden(path: Path, renew: bool) -> None:
    text = golden_text(objects(path))
    golden = TESTS / "golden" / path.name
    if renew:
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_what_is_printed_reads_back(path: Path) -> None:
    rendered = objects(path)
    assert list(yaml.safe_load_all(serialization.as_yaml(rendered))) == rendered
    assert json.loads(serialization.as_json(rendered))["items"] == rendered


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["1.33", "1.34", "1.35", "1.36"])
def test_the_strict_schemas_take_it(path: Path, version: str) -> None:
    for item in objects(path):
        if item["kind"] in ("PodGroup", "PodMonitor"):
            continue  # alpha, or another project's: tests/api/plan/
        if path.stem == "gang-of-kubernetes" and version < "1.36":
            continue  # from which version on a pod has a schedulingGroup
        kubernetes_validate.validate(item, version, strict=True)


def test_the_primary_comes_first_and_carries_the_spec() -> None:
    first, *others = objects(TESTS / "specs" / "valid" / "parameter-server.yaml")
    annotations = first["metadata"]["annotations"]
    assert annotations["tf-launcher.dev/primary"] == "true"
    cluster = TrainingCluster.model_validate_json(annotations["tf-launcher.dev/spec"])
    assert rendering.render(topology.build(cluster)) == [first, *others]
    assert all("annotations" not in item["metadata"] for item in others if item["kind"] == "Job")


def test_tf_config_refers_to_what_stands_before_it() -> None:
    for job in objects(TESTS / "specs" / "valid" / "parameter-server.yaml")[:4]:
        names = [variable["name"] for variable in container(job)["env"]]
        assert names[:2] == ["TASK_INDEX", "TF_CONFIG"]


def test_ten_thousand_workers() -> None:
    (loaded,) = loader.load(
        str(TESTS / "specs" / "valid" / "parameter-server.yaml"),
        ["spec.worker.replicas=10000", "spec.ps.replicas=200"],
    )
    planned = topology.build(loaded.cluster)
    rendered = rendering.render(planned)
    assert len(rendered) == 11
    names = {variable["name"] for variable in container(rendered[0])["env"]}
    assert "TF_CONFIG" not in names
    assert "TF_LAUNCHER_CLUSTER_FILE" in names
    config = next(item for item in rendered if item["metadata"]["name"] == "mnist-config")
    assert json.loads(config["data"]["cluster.json"]) == planned.training_cluster
    assert sum(len(value.encode()) for value in config["data"].values()) < 1 << 20
    for variable in container(rendered[1])["env"]:
        assert len(variable.get("value", "")) < 1000


def test_only_who_needs_it_mounts_the_model_directory() -> None:
    for job in objects(TESTS / "specs" / "valid" / "parameter-server.yaml")[:4]:
        role = job["metadata"]["labels"]["tf-launcher.dev/role"]
        mounted = any(mount["mountPath"] == "/model" for mount in container(job)["volumeMounts"])
        assert mounted == (role in ("chief", "evaluator"))


def test_no_label_of_the_users_takes_an_object_out_of_its_run() -> None:
    (loaded,) = loader.load(
        str(TESTS / "specs" / "valid" / "parameter-server.yaml"),
        ["metadata.labels={tf-launcher.dev/run: other, app.kubernetes.io/instance: other}"],
    )
    for item in rendering.render(topology.build(loaded.cluster)):
        assert item["metadata"]["labels"]["tf-launcher.dev/run"] == "mnist"
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "mnist"


def test_files_of_any_kind_travel() -> None:
    (loaded,) = loader.load(str(TESTS / "specs" / "valid" / "one-task-mirrored.yaml"))
    files = {"a b/ü.py": "x = '\x7f\u2028'\n".encode(), "table.bin": b"\xff\x00", "empty.py": b""}
    rendered = rendering.render(topology.build(loaded.cluster), ProgramFiles(files))
    source = next(item for item in rendered if item["metadata"]["name"] == "autoencoder-source")
    assert source["data"] == {"file-0": "x = '\x7f\u2028'\n", "file-2": ""}
    assert source["binaryData"] == {"file-1": "/wA="}
    volume = next(v for v in pod(rendered[0])["volumes"] if v["name"] == "launcher-source")
    assert [item["path"] for item in volume["configMap"]["items"]] == list(files)
    assert list(yaml.safe_load_all(serialization.as_yaml(rendered))) == rendered


def test_a_program_that_no_config_map_holds_travels_in_several() -> None:
    (loaded,) = loader.load(str(TESTS / "specs" / "valid" / "one-task-mirrored.yaml"))
    program = ProgramFiles({"a.py": b"x = 1\n", "b/data.bin": random.Random(1).randbytes(2_000_000)})
    rendered = rendering.render(topology.build(loaded.cluster), program)
    assert rendered == rendering.render(topology.build(loaded.cluster), program)
    parts = [item for item in rendered if "-source" in item["metadata"]["name"]]
    assert [item["metadata"]["name"] for item in parts] == [f"autoencoder-source-0{n}" for n in range(3)]
    whole = b"".join(base64.b64decode(item["binaryData"]["part"]) for item in parts)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == program.files
    assert object_size.too_large(rendered) is None
    (volume,) = (v for v in pod(rendered[0])["volumes"] if v["name"] == "launcher-source")
    assert volume["emptyDir"] == {}, "the runtime unpacks it there"


# ---- any text comes out as it went in, or is refused

ANY_TEXT = st.text(st.characters(), max_size=40) | st.sampled_from(
    [
        "$(HOME)",
        "$$(HOME)",
        "$$",
        "$",
        "$(",
        "on",
        "1e3",
        "0o10",
        "{{ x }}",
        "a: b",
        "- x",
        "'",
        '"',
        "#",
        "\t",
    ]
)


def container(job: Object) -> Object:
    item: Object = pod(job)["containers"][0]
    return item


def pod(job: Object) -> Object:
    item: Object = job["spec"]["template"]["spec"]
    return item


def expanded(text: str) -> str:
    """Returns a string without references as Kubernetes expands it: `$$` becomes `$`."""
    out, position = "", 0
    while position < len(text):
        if text[position] == "$" and text[position + 1 : position + 2] == "$":
            out, position = out + "$", position + 2
        elif text[position] == "$" and text[position + 1 : position + 2] == "(" and ")" in text[position:]:
            raise AssertionError(f"{text!r} has a reference that Kubernetes would replace")
        else:
            out, position = out + text[position], position + 1
    return out


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text(first: str, second: str, third: str) -> None:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run", "annotations": {"example.com/note": third}},
        "spec": {
            "strategy": "OneDevice",
            "program": {"entrypoint": "a:B", "parameters": {first: second, "list": [third]}},
            "chief": {"env": [{"name": "A", "value": first}], "args": [second, third]},
        },
    }
    # A file that a person could write: JSON is YAML, except for what `quoted` escapes.
    text = quoted(document)
    if any(is_refused(part) for part in (first, second, third)):
        with pytest.raises(SpecError):
            loading_from(text)
        return
    (loaded,) = loading_from(text)
    rendered = rendering.render(topology.build(loaded))
    for again in (list(yaml.safe_load_all(serialization.as_yaml(rendered))), rendered):
        job = again[0]
        values = {variable["name"]: variable.get("value") for variable in container(job)["env"]}
        assert expanded(values["A"]) == first
        assert [expanded(argument) for argument in container(job)["args"]] == [second, third]
        assert job["metadata"]["annotations"]["example.com/note"] == third
        config = next(item for item in again if item["metadata"]["name"] == "run-config")
        run = RunConfig.from_json(config["data"]["run.json"])
        assert run.parameters == {first: second, "list": [third]}


def shape(value: Any) -> Any:
    """Returns a value without its texts."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


def with_text_everywhere(text: str) -> Object:
    """Returns a file with the text in every place where a user may write any text, also in Kubernetes' own
    fields.
    """
    expression = {"key": "a", "operator": "In", "values": [text]}
    term = {"topologyKey": "a", "labelSelector": {"matchExpressions": [expression]}}
    return {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run", "annotations": {"example.com/note": text}},
        "spec": {
            "strategy": "OneDevice",
            "program": {"entrypoint": "a:B"},
            "modelDir": f"/model/{text}",
            "image": "example.com/image",
            "template": {
                "volumes": [{"name": "data", "csi": {"driver": "a", "volumeAttributes": {"a": text}}}],
                "volumeMounts": [{"name": "data", "mountPath": f"/data/{text}"}],
                "tolerations": [{"key": "a", "value": text}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
                "envFrom": [{"prefix": text, "secretRef": {"name": "a"}}],
                "workingDir": f"/{text}",
                "podTemplate": {
                    "metadata": {"annotations": {"example.com/other": text}},
                    "spec": {
                        "schedulerName": text,
                        "containers": [{"name": "tensorflow", "env": [{"name": "Z", "value": text}]}],
                    },
                },
            },
            "chief": {"resources": {"nvidia.com/gpu": 1}},
            "evaluator": {"podTemplate": {"metadata": {"annotations": {"example.com/other": text}}}},
        },
    }


@given(ANY_TEXT)
def test_no_text_changes_what_a_manifest_is(text: str) -> None:
    written = quoted(with_text_everywhere(text))
    if is_refused(text) or ":" in text:
        # The name is refused because it is part of a path.
        with pytest.raises(SpecError):
            loading_from(written)
        return
    (cluster,) = loading_from(written)
    rendered = rendering.render(topology.build(cluster))
    assert shape(rendered[0]) == plain_shape()
    assert list(yaml.safe_load_all(serialization.as_yaml(rendered))) == rendered
    assert json.loads(serialization.as_json(rendered))["items"] == rendered


@functools.cache
def plain_shape() -> Any:
    (plain,) = loading_from(quoted(with_text_everywhere("x")))
    return shape(rendering.render(topology.build(plain))[0])


def is_refused(text: str) -> bool:
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def loading_from(text: str) -> list[TrainingCluster]:
    from launcher.config import yaml_parser

    documents = yaml_parser.parse(text, "property")
    clusters = []
    for document in documents:
        cluster, problems = loader._validate(document)
        if problems or cluster is None:
            raise SpecError(problems)
        clusters.append(cluster)
    return clusters


@given(ANY_TEXT)
def test_an_image_has_the_characters_of_one(text: str) -> None:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run"},
        "spec": {"strategy": "OneDevice", "program": {"entrypoint": "a:B"}, "image": f"example.com/{text}"},
    }
    if re.fullmatch(r"[a-z0-9]+", text):
        (cluster,) = loading_from(quoted(document))
        assert cluster.spec.image == f"example.com/{text}"
    elif not re.fullmatch(r"[A-Za-z0-9_.\-/:@+]+", text):
        with pytest.raises(SpecError) as caught:
            loading_from(quoted(document))
        assert [problem.path for problem in caught.value.problems] == ["spec.image"]


@given(st.text(string.ascii_letters + string.digits + "-_./", max_size=70))
def test_a_label_is_taken_or_refused_by_its_field(value: str) -> None:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run", "labels": {"team": value}},
        "spec": {"strategy": "OneDevice", "program": {"entrypoint": "a:B"}},
    }
    # The pattern of https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
    if len(value) > 63 or not re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", value):
        with pytest.raises(SpecError) as caught:
            loading_from(json.dumps(document))
        assert [problem.path for problem in caught.value.problems] == ["metadata.labels.team"]
    else:
        (cluster,) = loading_from(json.dumps(document))
        assert rendering.render(topology.build(cluster))[0]["metadata"]["labels"]["team"] == value
