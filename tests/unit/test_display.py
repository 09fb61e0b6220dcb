"""What is printed where there is no terminal is whole."""

from __future__ import annotations

import io

from launcher import display
from launcher.status import Phase, RoleStatus, RunStatus


def test_a_list_cuts_no_name_short() -> None:
    run, namespace = "a-run-with-a-long-name-" + "x" * 30, "namespace-" + "y" * 40
    roles = tuple(
        RoleStatus(role, f"{run}-{role}", Phase.RUNNING, 100, 100, 100, 0, 0, 0)
        for role in ("chief", "worker", "ps", "evaluator")
    )
    status = RunStatus(run, namespace, Phase.RUNNING, False, "", "", roles, (), started=0.0)
    file = io.StringIO()
    display.show_list([status], display.console(file))
    heading, line = file.getvalue().splitlines()
    assert heading.split() == ["NAMESPACE", "RUN", "STATE", "TASKS", "STARTED"]
    assert line.startswith(f"{namespace}   {run}   Running   100 chief, 100 worker, 100 ps, 100 evaluator   ")
    assert "\x1b" not in line
