"""The environment of a container, computed as the kubelet does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.local.pod.environment import MissingError, environment, expand
from launcher.plan.pods import escaped
from launcher.quantities import quantity

POD = {
    "metadata": {
        "name": "demo-worker-1-x7k2p",
        "namespace": "team",
        "uid": "u",
        "labels": {"a/b": "label"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
    },
    "spec": {},
}


def env(*entries: dict[str, Any], **container: Any) -> dict[str, str]:
    return environment({"env": list(entries), **container}, POD, {"settings": {"KEY": "value"}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # From kubernetes/kubernetes third_party/forked/golang/expansion/expand_test.go
        ("$(VAR_A)", "A"),
        ("$(VAR_A)_$(VAR_B)", "A_B"),
        ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
        ("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)"),
        ("f000-$$VAR_A", "f000-$VAR_A"),
        ("foo\\$(VAR_C)bar", "foo\\Cbar"),
        ("foo\\\\$(VAR_C)bar", "foo\\\\Cbar"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("foo$(VAR_Awhoops!", "foo$(VAR_Awhoops!"),
        ("f00__(VAR_A)__", "f00__(VAR_A)__"),
        ("$?_boo_$!", "$?_boo_$!"),
        ("$VAR_A", "$VAR_A"),
        ("$(VAR_DNE)", "$(VAR_DNE)"),
        ("$$$$$$(BIG_MONEY)", "$$$(BIG_MONEY)"),
        ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
        ("$$$$$$$(GOOD_ODDS)", "$$$$(GOOD_ODDS)"),
        ("$$$$$$$(VAR_A)", "$$$A"),
        ("$VAR_A)", "$VAR_A)"),
        ("${VAR_A}", "${VAR_A}"),
        ("$(VAR_B)_______$(A", "B_______$(A"),
        ("$(VAR_C)_______$(", "C_______$("),
        ("$(VAR_A)foobarzab$", "Afoobarzab$"),
        ("foo-\\$(VAR_A", "foo-\\$(VAR_A"),
        ("--$($($($($--", "--$($($($($--"),
        ("$($($($($--foo$(", "$($($($($--foo$("),
        ("foo0--$($($($(", "foo0--$($($($("),
        ("$(foo$$var)", "$(foo$$var)"),
        ("$(VAR_A)$", "A$"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_references(text: str, expected: str) -> None:
    variables = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}
    assert expand(text, variables) == expected


@given(st.text(st.sampled_from("$()ABx ")), st.dictionaries(st.sampled_from(["A", "B", "AB"]), st.text()))
def test_escaped_text_comes_out_as_it_went_in(text: str, variables: dict[str, str]) -> None:
    assert expand(escaped(text), variables) == text


def test_a_variable_sees_those_before_it() -> None:
    variables = env(
        {"name": "EARLY", "value": "[$(LATE)][$(KEY)]"},
        {"name": "LATE", "value": "$(EARLY)!"},
        {"name": "EARLY", "value": "again $(EARLY)"},
        envFrom=[{"configMapRef": {"name": "settings"}}],
    )
    assert variables == {"KEY": "value", "EARLY": "again [$(LATE)][value]", "LATE": "[$(LATE)][value]!"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "demo-worker-1-x7k2p"),
        ("metadata.namespace", "team"),
        ("metadata.labels['a/b']", "label"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "1"),
        ("spec.nodeName", "localhost"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_fields(path: str, expected: str) -> None:
    assert env({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}) == {"X": expected}


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ({"fieldRef": {"fieldPath": "status.phase"}}, "env X: field status.phase"),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "env X: key k of Secret s"),
        ({"configMapKeyRef": {"name": "settings", "key": "k"}}, "env X: key k of ConfigMap settings"),
        ({"fileKeyRef": {}}, "env X: fileKeyRef"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], missing: str) -> None:
    with pytest.raises(MissingError) as error:
        env({"name": "X", "valueFrom": source})
    assert str(error.value) == missing


def test_what_is_optional_may_be_missing() -> None:
    optional = {"name": "s", "key": "k", "optional": True}
    variables = env(
        {"name": "X", "valueFrom": {"secretKeyRef": optional}},
        {"name": "Y", "valueFrom": {"configMapKeyRef": optional}},
        {"name": "Z", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "KEY"}}},
        envFrom=[{"secretRef": {"name": "s", "optional": True}}],
    )
    assert variables == {"Z": "value"}
    with pytest.raises(MissingError, match="envFrom: Secret s"):
        env(envFrom=[{"secretRef": {"name": "s"}}])


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "2048"),
        ("requests.memory", None, "1000"),
        ("requests.ephemeral-storage", None, "0"),
    ],
)
def test_resources(resource: str, divisor: str | None, expected: str) -> None:
    reference = {"resource": resource, **({"divisor": divisor} if divisor else {})}
    resources = {"limits": {"cpu": "1500m", "memory": "2Gi"}, "requests": {"memory": "1e3"}}
    variables = env({"name": "X", "valueFrom": {"resourceFieldRef": reference}}, resources=resources)
    assert variables == {"X": expected}


@pytest.mark.parametrize("text", ["", "1x", "-1", "1 Gi", "Gi", "mi"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)
