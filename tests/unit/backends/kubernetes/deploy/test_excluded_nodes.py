"""Pods that stay away from nodes, beside whatever else the user asks of a node."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.backends.kubernetes.deploy.excluded_nodes import elsewhere

OURS = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]}
GPU = {"key": "gpu", "operator": "In", "values": ["a100"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, required({"matchExpressions": [OURS]})),
        ({"podAffinity": {"x": []}}, {"podAffinity": {"x": []}} | required({"matchExpressions": [OURS]})),
        # Of several terms one is enough, so each is narrowed.
        (
            required({"matchExpressions": [GPU]}, {"matchFields": [ZONE]}),
            required({"matchExpressions": [GPU, OURS]}, {"matchFields": [ZONE], "matchExpressions": [OURS]}),
        ),
        # An earlier start left n1 out.
        (
            required({"matchExpressions": [GPU, OURS | {"values": ["n1"]}]}),
            required({"matchExpressions": [GPU, OURS]}),
        ),
    ],
)
def test_nodes_are_left_out(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert elsewhere(given, ["n1", "n2"]) == expected


def test_what_the_user_leaves_out_stays_left_out() -> None:
    theirs = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n7"]}
    changed = elsewhere(required({"matchExpressions": [theirs]}), ["n1", "n2"])
    assert changed == required({"matchExpressions": [theirs, OURS]})
