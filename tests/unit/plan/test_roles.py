"""A role is resolved once: one module merges its fields, and all others read the result."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.plan import roles
from launcher.pod_spec import strategic_merge
from launcher.validation import loader

DEMO = "examples/fashion-mnist/cluster.yaml"
NAMES = ("chief", "worker", "ps", "evaluator")


def counted(act: Callable[[], object]) -> tuple[Counter[str], Counter[str]]:
    """Counts how often each role is resolved while `act` runs, and how often a module merges podTemplates.

    Calls are counted at the functions' first lines, so that every import of them counts.
    """
    resolved: Counter[str] = Counter()
    merged: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_back is None:
            return
        if frame.f_code is roles.resolve.__code__:
            resolved[frame.f_locals["name"]] += 1
        elif frame.f_code is strategic_merge.strategic_merge.__code__:
            merged[frame.f_back.f_globals["__name__"]] += 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(before)
    # It calls itself for nested values.
    del merged[strategic_merge.__name__]
    return resolved, merged


@pytest.mark.parametrize("overrides", [(), ("spec.scheduling.queue=team-a",)], ids=["jobs", "both-forms"])
def test_a_plan_resolves_each_role_once(overrides: tuple[str, ...]) -> None:
    loaded = loader.load(DEMO, overrides)[0]
    resolved, merged = counted(lambda: plan_of_file.plan(loaded))
    assert resolved == dict.fromkeys(NAMES, 1)
    # Two podTemplates are merged over the file's fields, and over each rendered pod.
    forms = 2 if overrides else 1
    assert merged == {roles.__name__: 2 * len(NAMES) * (1 + forms)}


def test_the_rules_resolve_each_role_once() -> None:
    resolved, merged = counted(lambda: loader.load(DEMO))
    assert resolved == dict.fromkeys(NAMES, 1)
    # The other merges check each podTemplate by itself: the template's, and those of the roles.
    assert merged == {roles.__name__: 2 * len(NAMES), "launcher.validation.pod_template": 1 + len(NAMES)}
