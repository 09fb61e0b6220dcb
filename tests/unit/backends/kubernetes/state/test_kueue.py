"""Sentences about Kueue's Workload."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.backends.kubernetes.state.kueue import slim_workload

PREEMPTED = "Preempted to accommodate a workload"


def words(conditions: dict[str, tuple[str, str]], **spec: Any) -> str:
    """`type: (status, message)`."""
    given = [
        {"type": kind, "status": status, "reason": kind, "message": message}
        for kind, (status, message) in conditions.items()
    ]
    workload = {"metadata": {"uid": "1"}, "spec": spec, "status": {"conditions": given}}
    return str(slim_workload(workload)["words"])


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, "Kueue has not said anything about it yet"),
        ({"QuotaReserved": ("False", "no quota")}, "no quota"),
        ({"QuotaReserved": ("True", "")}, "its quota is reserved, and admission checks are not done"),
        ({"QuotaReserved": ("True", ""), "Admitted": ("True", "")}, ""),
        ({"QuotaReserved": ("False", ""), "Finished": ("True", "")}, ""),
        ({"Evicted": ("True", PREEMPTED)}, f"it was evicted (Evicted): {PREEMPTED}"),
        (
            {"Evicted": ("True", PREEMPTED), "QuotaReserved": ("False", "no quota")},
            f"it was evicted (Evicted): {PREEMPTED}; no quota",
        ),
        # Kueue often has the same message in both.
        ({"Evicted": ("True", PREEMPTED), "QuotaReserved": ("False", PREEMPTED)}, PREEMPTED),
        ({"Evicted": ("False", "Previously"), "QuotaReserved": ("False", "no quota")}, "no quota"),
    ],
)
def test_why_it_waits(conditions: dict[str, tuple[str, str]], expected: str) -> None:
    assert words(conditions) == expected


def test_held_back() -> None:
    message = words({"Evicted": ("True", "The workload is deactivated")}, active=False)
    assert message == "it is held back, and `resume` starts it again"
