"""The decisions of a Job's controller, without a process and without waiting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.local.supervisor.jobs import Backoff, JobController, Verdict
from launcher.backends.local.supervisor.pod_failure_policy import match_failure, success_rule
from launcher.index_ranges import format_indexes, parse_indexes


def controller(**spec: Any) -> JobController:
    return JobController({"metadata": {"name": "demo"}, "spec": spec}, Backoff(1.0, 60.0))


def reason(job: JobController) -> str:
    """Returns why the Job ends; "" while it continues."""
    return job.verdict.reason if job.verdict is not None else ""


def pod(code: int) -> dict[str, Any]:
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"name": "tensorflow", "state": {"terminated": {"exitCode": code}}}],
    }


def end(job: JobController, index: int, code: int, now: float = 0.0) -> None:
    job.ended(index, f"default/demo-{index}", pod(code), now)


def test_all_indexes_start_at_once() -> None:
    job = controller(completions=3, parallelism=3)
    assert job.startable(0.0) == [0, 1, 2]
    assert job.startable(0.0) == []
    assert job.next_time() is None


def test_parallelism_is_kept() -> None:
    job = controller(completions=3, parallelism=2)
    assert job.startable(0.0) == [0, 1]
    end(job, 0, 0)
    assert job.startable(0.0) == [2]


def test_delays_double_for_each_index() -> None:
    job = controller(completions=2, parallelism=2, backoffLimitPerIndex=9)
    job.startable(0.0)
    now = 0.0
    for delay in (1.0, 2.0, 4.0, 8.0):
        end(job, 0, 1, now)
        assert job.next_time() == now + delay
        assert job.startable(now + delay - 0.01) == []
        now += delay
        assert job.startable(now) == [0]
    end(job, 1, 1, now)
    assert job.next_time() == now + 1.0, "the other index has a delay of its own"


def test_delays_have_a_limit() -> None:
    assert [Backoff(10.0, 600.0).delay(count) for count in (0, 1, 2, 6, 7, 8, 500)] == [
        0, 10, 20, 320, 600, 600, 600,
    ]  # fmt: skip


def test_without_a_limit_per_index_all_wait_alike() -> None:
    job = controller(completions=2, parallelism=2, backoffLimit=5)
    job.startable(0.0)
    end(job, 0, 1, 10.0)
    end(job, 1, 1, 10.0)
    assert job.startable(11.0) == []
    assert job.startable(12.0) == [0, 1]


@pytest.mark.parametrize(("limit", "failures"), [(0, 1), (2, 3)])
def test_the_backoff_limit_counts_retries(limit: int, failures: int) -> None:
    job = controller(completions=1, backoffLimit=limit)
    for attempt in range(failures):
        assert reason(job) == ""
        assert job.startable(attempt * 1000.0) == [0]
        end(job, 0, 1, attempt * 1000.0)
    assert job.verdict == Verdict(
        "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    )


def test_six_retries_by_default() -> None:
    job = controller(completions=1)
    for attempt in range(7):
        assert reason(job) == ""
        job.startable(attempt * 1000.0)
        end(job, 0, 1, attempt * 1000.0)
    assert job.verdict is not None


def test_fail_index_ends_an_index_and_not_the_job() -> None:
    rule = {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [75]}}
    job = controller(completions=2, parallelism=2, backoffLimitPerIndex=3, podFailurePolicy={"rules": [rule]})
    job.startable(0.0)
    end(job, 0, 75)
    end(job, 1, 1)
    assert job.failed_indexes == {1}
    assert job.startable(100.0) == [0]
    end(job, 0, 0)
    assert reason(job) == "FailedIndexes"


def test_more_indexes_are_started_on_top() -> None:
    job = controller(completions=2, parallelism=2, backoffLimitPerIndex=0)
    assert job.startable(0.0) == [0, 1]
    job.scale(4)
    assert (job.completions, job.parallelism, job.generation) == (4, 4, 2)
    assert job.startable(0.0) == [2, 3]
    assert job.startable(0.0) == []


def test_fewer_indexes_take_the_highest_away() -> None:
    job = controller(completions=4, parallelism=4, backoffLimitPerIndex=0)
    job.startable(0.0)
    end(job, 3, 1)
    assert job.failed_indexes == {3}
    job.scale(2)
    assert job.failed_indexes == set()
    end(job, 2, 0)  # it was told to stop, and has just finished
    assert (job.succeeded, reason(job)) == (set(), "")
    end(job, 0, 0)
    job.removed(3)
    assert job.startable(0.0) == []
    end(job, 1, 0)
    assert reason(job) == "CompletionsReached"


def test_an_index_that_comes_back_waits_for_its_pod_and_begins_anew() -> None:
    job = controller(completions=3, parallelism=3, backoffLimitPerIndex=0)
    job.startable(0.0)
    end(job, 2, 1)
    job.scale(1)
    job.scale(3)
    assert job.startable(0.0) == [2], "it had failed for good"
    job.removed(1)
    assert job.startable(0.0) == [1]


def test_fewer_indexes_may_be_the_end() -> None:
    job = controller(completions=3, parallelism=3, backoffLimitPerIndex=0)
    job.startable(0.0)
    end(job, 0, 0)
    job.scale(1)
    assert reason(job) == "CompletionsReached"
    job.scale(3)
    assert (job.completions, job.generation) == (1, 2), "an end that is decided stays"


def test_the_deadline_counts_from_the_resumption() -> None:
    job = controller(completions=1, activeDeadlineSeconds=10)
    job.startable(0.0)
    assert job.next_time() == 10.0
    job.suspend()
    job.removed(0)
    job.expire(50.0)
    assert reason(job) == ""
    assert (job.startable(50.0), job.next_time()) == ([], None)
    job.resume()
    assert job.startable(60.0) == [0]
    job.expire(69.9)
    assert reason(job) == ""
    job.expire(70.0)
    assert reason(job) == "DeadlineExceeded"


def test_a_decided_job_ends_when_its_pods_have() -> None:
    job = controller(completions=2, parallelism=2)
    job.startable(0.0)
    job.decide(Verdict("Failed", "Stopped", ""))
    job.decide(Verdict("Failed", "RunFailed", ""))
    assert job.settle(1.0) is False
    job.removed(0)
    job.removed(1)
    assert job.settle(2.0) is True
    assert job.settle(3.0) is False
    assert (job.finished_at, job.verdict and job.verdict.reason) == (2.0, "Stopped")
    assert job.startable(9.0) == []


def test_who_is_not_to_be_restarted_is_not() -> None:
    job = controller(completions=2, parallelism=2, backoffLimitPerIndex=3)
    job.startable(0.0)
    end(job, 0, 1)
    job.stop_restarting()
    assert (job.startable(100.0), job.next_time()) == ([], None)
    end(job, 1, 0)
    assert reason(job) == "", "whoever stopped the restarts says how it ends"


def test_pod_conditions_are_matched() -> None:
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    status = {**pod(137), "conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    match = match_failure(policy, "default/demo-0", status)
    assert match is not None
    assert match.action == "Ignore"
    assert match_failure(policy, "default/demo-0", pod(137)) is None
    assert match_failure(None, "default/demo-0", status) is None


@pytest.mark.parametrize(
    ("rule", "succeeded", "met"),
    [
        ({"succeededIndexes": "0"}, {0, 5}, True),
        ({"succeededIndexes": "0"}, {1, 2}, False),
        ({"succeededIndexes": "0-2"}, {0, 1}, False),
        ({"succeededIndexes": "0-2", "succeededCount": 2}, {0, 1}, True),
        ({"succeededCount": 2}, {7, 8}, True),
        ({"succeededCount": 2}, {7}, False),
    ],
)
def test_success_policies(rule: dict[str, Any], succeeded: set[int], met: bool) -> None:
    assert success_rule({"rules": [rule]}, succeeded) == (0 if met else None)


@given(st.sets(st.integers(0, 200)))
def test_indexes_are_written_and_read(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


@pytest.mark.parametrize(
    ("indexes", "text"), [({1, 3, 4, 5, 7}, "1,3-5,7"), ({0, 1}, "0,1"), (set(), ""), ({4}, "4")]
)
def test_indexes_look_as_in_kubernetes(indexes: set[int], text: str) -> None:
    assert format_indexes(indexes) == text


@given(
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["backoffLimit", "backoffLimitPerIndex"]),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 70, 75])), max_size=80),
)
def test_whatever_happens_the_counts_agree(
    completions: int, limit: int, kind: str, ends: list[tuple[int, int]]
) -> None:
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [70]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}},
    ]
    job = controller(
        completions=completions, parallelism=completions, podFailurePolicy={"rules": rules}, **{kind: limit}
    )
    now, failed = 0.0, 0
    for which, code in ends:
        now += 1000.0
        started = job.startable(now)
        assert len(job.active) + len(job.succeeded) + len(job.failed_indexes) <= completions
        assert job.verdict is None or not started
        if not job.active:
            break
        index = sorted(job.active)[which % len(job.active)]
        end(job, index, code, now)
        failed += code in (1, 70)
        assert job.failed == failed
        assert not job.active & (job.succeeded | job.failed_indexes)
    if len(job.succeeded) == completions:
        assert job.verdict is not None
    for index in sorted(job.active):
        end(job, index, 0, now)
    if job.verdict is not None:
        assert job.settle(now)
