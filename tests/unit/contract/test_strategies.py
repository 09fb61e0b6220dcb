"""One table says of each strategy what it has and who goes on without whom; its readers agree."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from launcher import object_names
from launcher.backends import run_end_rule
from launcher.config import json_schema
from launcher.config.spec import RoleName, StrategyOptions, TrainingCluster
from launcher.plan import gang_scheduling, job_failures, jobset, topology
from launcher.status import Phase
from worker.contract.strategies import BESIDE, PARTITIONERS, STRATEGIES, StrategyName
from worker.contract.task_names import EXTRA_WORKER


def test_the_table_has_every_strategy_and_every_option() -> None:
    assert set(get_args(StrategyName)) == set(STRATEGIES)
    options = [option for strategy in STRATEGIES.values() for option in strategy.options]
    assert set(options) == set(StrategyOptions.model_fields)
    assert {option for option_names in PARTITIONERS.values() for option in option_names} < set(options)
    texts = json_schema.descriptions()["StrategyOptions"]
    for name in StrategyOptions.model_fields:
        owners = {owner for owner, strategy in STRATEGIES.items() if name in strategy.options}
        # The option's text names its strategies first, and the partitioners that take it.
        named = set(texts[name].partition(":")[0].replace(",", " ").split())
        assert named & set(STRATEGIES) == owners, name
        takes = {partitioner for partitioner, option_names in PARTITIONERS.items() if name in option_names}
        assert named & set(PARTITIONERS) == takes, name


def planned(strategy: str, role: str) -> topology.Topology:
    """A run with two tasks of the role, where there may be two."""
    spec: dict[str, Any] = {"strategy": strategy, "program": {"entrypoint": "a:A"}, "evaluator": {}}
    several = STRATEGIES[strategy].several
    if "ps" in STRATEGIES[strategy].losses:
        spec |= {"ps": {"replicas": 2}}
    if several:
        spec |= {"worker": {"replicas": 2}}
    if role == "chief" or not several:
        spec |= {"chief": {}}
    if role in ("dispatcher", "data-worker"):
        spec |= {"dataService": {"workers": 2, "sharding": "FileOrData"}}
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "demo"},
        "spec": spec,
    }
    return topology.build(TrainingCluster.model_validate(document, strict=False))


@pytest.mark.parametrize(
    ("strategy", "role", "of_a_gang", "job_goes_on", "job_tries_again", "needed"),
    [
        ("OneDevice", "chief", 1, False, False, True),
        ("OneDevice", "evaluator", 0, False, True, False),
        ("MultiWorkerMirrored", "chief", 1, False, False, True),
        ("MultiWorkerMirrored", "worker", 2, False, False, True),
        ("MultiWorkerMirrored", "data-worker", 2, False, True, True),
        ("ParameterServer", "chief", 1, False, False, True),
        ("ParameterServer", "worker", 1, True, True, True),
        ("ParameterServer", "ps", 2, False, False, True),
        ("ParameterServer", "evaluator", 0, False, True, False),
        ("ParameterServer", "dispatcher", 1, False, True, True),
        ("ParameterServer", "data-worker", 2, False, True, True),
        ("Custom", "ps", 2, False, False, True),
    ],
)
def test_who_goes_on_without_whom(
    strategy: str, role: Any, of_a_gang: int, job_goes_on: bool, job_tries_again: bool, needed: bool
) -> None:
    run_topology = planned(strategy, role)
    assert gang_scheduling.members(run_topology).get(role, 0) == of_a_gang
    assert jobset.survives(run_topology, role) is job_tries_again
    if strategy != "Custom":
        retries = job_failures.retries(run_topology, run_topology.role(role))
        assert ("backoffLimitPerIndex" in retries and "maxFailedIndexes" not in retries) is job_goes_on
    if role == "chief":
        return
    chief = run_end_rule.Role("chief", "demo-chief", Phase.RUNNING)
    lost = run_end_rule.Role(role, f"demo-{role}", Phase.FAILED, ended_at=0.0)
    decided = run_end_rule.decide(chief, [lost], "Running", 1000.0)
    assert bool(decided.stops) is needed


def test_every_role_that_trains_or_stands_beside_has_its_place_in_the_table() -> None:
    for strategy in STRATEGIES.values():
        assert {"chief", "worker"} <= set(strategy.losses)
        assert not set(strategy.losses) & set(BESIDE)
        assert set(strategy.servers) <= set(strategy.losses)


def test_the_command_line_and_the_file_know_the_roles_of_the_table() -> None:
    roles = {role for strategy in STRATEGIES.values() for role in strategy.losses} | {*BESIDE, EXTRA_WORKER}
    assert set(object_names.ROLES) == set(get_args(RoleName)) == roles
