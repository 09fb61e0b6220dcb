"""What a task knows of itself."""

from __future__ import annotations

import pytest

from worker.contract.run_config import RunConfig
from worker.task import Task


@pytest.mark.parametrize(
    ("replicas", "task", "is_primary"),
    [
        ({"chief": 1, "worker": 2, "ps": 1}, ("chief", 0), True),
        ({"chief": 1, "worker": 2, "ps": 1}, ("worker", 0), False),
        ({"worker": 2}, ("worker", 0), True),
        ({"worker": 2}, ("worker", 1), False),
        ({"worker": 1, "evaluator": 1}, ("evaluator", 0), False),
    ],
)
def test_one_task_writes_the_model_directory_though_a_workers_tf_config_may_not_name_the_chief(
    replicas: dict[str, int], task: tuple[str, int], is_primary: bool
) -> None:
    config = RunConfig("tiny", "ParameterServer", replicas, 900, 900, 300)
    role, index = task
    assert Task(config, role, index, {role: {index: "host:1"}}, None, None).is_primary is is_primary
