"""A loaded file -> what a backend carries out. The whole way in one place, without doing anything yet."""

from __future__ import annotations

from launcher import rendering, source, topology
from launcher.backends.base import Plan
from launcher.loading import Loaded


def plan(loaded: Loaded, run_id: str = "") -> Plan:
    """The plan of one run. Raises SpecError when the program's source is not there or not right.

    `run_id` tells one submission of a name from the next; empty for one that nobody submits.
    """
    planned = topology.build(loaded.cluster)
    return Plan(
        run=planned.run,
        namespace=planned.namespace,
        objects=rendering.render(planned, source.read(loaded), run_id),
        addresses=[task.address for task in planned.tasks],
    )
