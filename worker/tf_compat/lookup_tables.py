"""Lookup tables of a ParameterServer run that are used in a model and not only in a dataset.

Each worker has its own copy of a table, and a function gets the copy of its worker when it is called.
TensorFlow (2.21) does not pass the copy to the body of a loop or of a condition: "You must feed a value for
placeholder tensor". An execution of several steps is such a loop.
"""

from __future__ import annotations

from typing import Any

_FLOW = {"WhileBodyFuncGraph", "WhileCondFuncGraph", "CondBranchFuncGraph"}


def reach_tables_from_loops() -> None:
    """Has the function around a loop find the tables that the loop uses. Called once for a process."""
    from tensorflow.python.distribute import ps_values
    from tensorflow.python.framework import ops

    original = ps_values.DistributedTable.resource_handle

    def resource_handle(table: Any) -> Any:
        with _around_loops(ops.get_default_graph()).as_default():
            return original.fget(table)

    if not hasattr(original.fget, "reaches"):
        resource_handle.reaches = True  # type: ignore[attr-defined]
        ps_values.DistributedTable.resource_handle = property(resource_handle)


def _around_loops(graph: Any) -> Any:
    while type(graph).__name__ in _FLOW:
        graph = graph.outer_graph
    return graph
