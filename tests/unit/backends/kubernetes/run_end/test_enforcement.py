"""The follower of a run carries out the policy on a cluster: without rights, beside other followers, and on
lost nodes.
"""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.backends.kubernetes.run_end.enforcement import CleanUp, CleanUpSettings
from launcher.backends.kubernetes.state.run_state import (
    STOPPED_ANNOTATION,
    RunState,
    slim_event,
    slim_job,
)
from launcher.object_names import SPEC_ANNOTATION
from tests.unit.fake_api import Fake, says

AT_ONCE = CleanUpSettings(0.0, 0.0, 0.0, 0.0, gone_seconds=0.0)
SUCCEEDED = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
FORBIDDEN = says({"message": 'jobs.batch "x" is forbidden: User "eve" cannot patch resource "jobs"'}, 403)


def seen(ends: dict[str, dict[str, str] | None], *stopped: str, **spec: Any) -> RunState:
    """Returns a run of Jobs with these conditions; the chief's comes first. `spec` is that of the file."""
    run_state = RunState("chief")
    for role, condition in ends.items():
        annotations = {STOPPED_ANNOTATION: "Stopped: by hand"} if role in stopped else {}
        if role == "chief":
            annotations |= {"tf-launcher.dev/primary": "true", SPEC_ANNOTATION: json.dumps({"spec": spec})}
        metadata = {
            "name": f"demo-{role}",
            "namespace": "default",
            "uid": role,
            "labels": {"tf-launcher.dev/run": "demo", "tf-launcher.dev/role": role},
            "annotations": annotations,
            "ownerReferences": [] if role == "chief" else [{"uid": "chief"}],
        }
        status = {"conditions": [condition] if condition is not None else []}
        job = {"metadata": metadata, "spec": {"completions": 1, "template": {}}, "status": status}
        run_state.put("Job", slim_job(job))
    return run_state


def look(clean_up: CleanUp, run_state: RunState) -> list[str]:
    return clean_up.see_to(run_state.status({}), run_state)


def test_who_may_not_stop_what_is_left_looks_on_no_longer(fake: Fake) -> None:
    fake.will(FORBIDDEN)
    clean_up = CleanUp(fake.client, AT_ONCE)
    (message,) = look(clean_up, seen({"chief": SUCCEEDED, "ps": None}))
    assert message.startswith("what is left of the run is still running: ")
    assert clean_up.gave_up


def test_who_may_not_stop_the_primary_sees_how_it_ends(fake: Fake) -> None:
    fake.will(FORBIDDEN)
    clean_up = CleanUp(fake.client, AT_ONCE)
    doomed = seen({"chief": None, "ps": FAILED})
    (message,) = look(clean_up, doomed)
    assert message.startswith("demo-ps has failed, and the run cannot go on without it: ")
    assert (look(clean_up, doomed), clean_up.gave_up) == ([], False)
    assert len(fake.asked) == 1


def test_a_server_that_is_busy_is_asked_again(fake: Fake) -> None:
    fake.will(says({"message": "please wait"}, 429, Retry_After="3600"), says({}))
    clean_up = CleanUp(fake.client, AT_ONCE)
    run_state = seen({"chief": SUCCEEDED, "ps": None})
    assert (look(clean_up, run_state), clean_up.gave_up) == ([], False)
    assert look(clean_up, run_state) == ["nothing of demo-ps ran when demo-chief had ended: stopped"]


@pytest.mark.parametrize(("gone_seconds", "gives_up"), [(600.0, False), (0.0, True)])
def test_what_was_stopped_by_others_is_only_waited_for(
    fake: Fake, gone_seconds: float, gives_up: bool
) -> None:
    """An interruption, or another follower, has stopped them, and their reason stays."""
    clean_up = CleanUp(fake.client, CleanUpSettings(0.0, 0.0, 0.0, 0.0, gone_seconds=gone_seconds))
    messages = look(clean_up, seen({"chief": FAILED, "worker": None, "ps": None}, "worker", "ps"))
    words = "demo-worker, demo-ps was stopped and does not end; its nodes may not answer"
    assert (messages, clean_up.gave_up) == ([words] if gives_up else [], gives_up)
    assert fake.asked == []


def test_a_primary_that_was_stopped_by_hand_is_seen_to_its_end(fake: Fake) -> None:
    """Its tasks may have a long grace period, and their peers may be gone before its end."""
    clean_up = CleanUp(fake.client, AT_ONCE)
    assert (look(clean_up, seen({"chief": None, "ps": FAILED}, "chief", "ps")), clean_up.gave_up) == (
        [],
        False,
    )
    assert fake.asked == []


def test_a_primary_that_we_have_stopped_is_not_waited_for_without_end(fake: Fake) -> None:
    fake.will(says({}))
    clean_up = CleanUp(fake.client, AT_ONCE)
    doomed = seen({"chief": None, "ps": FAILED})
    assert look(clean_up, doomed)[0].endswith("cannot go on without it; demo-chief is stopped")
    assert look(clean_up, doomed) == ["demo-chief was stopped and does not end; its nodes may not answer"]
    assert clean_up.gave_up


def test_what_has_started_again_has_its_time_anew(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JobSet's controller restarts all of its Jobs after a failure of one."""
    fake.will(says({}))
    clean_up = CleanUp(fake.client, CleanUpSettings(failed_seconds=60.0))
    had_messages = []
    for now, ps in ((0.0, FAILED), (50.0, None), (55.0, FAILED), (114.0, FAILED), (115.0, FAILED)):
        monkeypatch.setattr(
            "launcher.backends.kubernetes.run_end.enforcement.time",
            SimpleNamespace(monotonic=partial(float, now)),
        )
        had_messages.append(bool(look(clean_up, seen({"chief": None, "ps": ps}))))
    assert had_messages == [False, False, False, False, True]


QUOTA = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
DEADLINE = {"runPolicy": {"startingDeadlineSeconds": 0}}


@pytest.mark.parametrize(
    ("words", "spec", "ends"),
    [
        ('error looking up service account ml/nosa: serviceaccount "nosa" not found', {}, True),
        (QUOTA, {}, False),
        (QUOTA, DEADLINE, True),
        (QUOTA, {**DEADLINE, "scheduling": {"gang": "Volcano"}}, False),
    ],
)
def test_a_run_whose_pods_the_server_refuses_ends_unless_that_may_pass(
    fake: Fake, words: str, spec: dict[str, Any], ends: bool
) -> None:
    fake.will(says({}))
    run_state = seen({"chief": None, "ps": None}, **spec)
    refused = {
        "involvedObject": {"kind": "Job", "uid": "chief"},
        "reason": "FailedCreate",
        "message": f'Error creating: pods "demo-chief-0-abcde" is forbidden: {words}',
        "lastTimestamp": "2026-01-01T00:00:05Z",
    }
    run_state.put("Event", slim_event(refused))
    messages = look(CleanUp(fake.client, CleanUpSettings(stuck_seconds=0.0)), run_state)
    assert [message.partition(": ")[0] for message in messages] == (
        ["demo-chief could not start for 0 s (startingDeadlineSeconds)"] if ends else []
    )
    assert all(message.endswith("; demo-chief is stopped") for message in messages)
    assert "by itself" not in "".join(messages), "nothing starts by itself any more"
