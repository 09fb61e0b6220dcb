"""Jobs on this machine have the meaning that they have in Kubernetes."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.store import SupervisorSettings
from launcher.errors import BackendError, ConflictError, NotFoundError
from launcher.status import Phase
from tests.local.machine import Machine, eventually, job, kill, linux_only, with_variable

WAIT = "import time; print('up'); time.sleep(600)"
"""A task that ends only on SIGTERM, as a worker that was never released."""

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"


def fails_times(path: Path, times: int, code: int = 1) -> str:
    """Returns code that fails `times` times, counted in a file, and then succeeds."""
    return (
        "import os, pathlib, sys\n"
        f"seen = pathlib.Path({str(path)!r} + os.environ['TASK_INDEX'])\n"
        "count = len(seen.read_text()) if seen.exists() else 0\n"
        "seen.write_text('x' * (count + 1))\n"
        f"sys.exit({code} if count < {times} else 0)\n"
    )


def test_a_run_succeeds_when_its_jobs_do(machine: Machine) -> None:
    status = machine.run(
        job("chief", "print('hello from', __import__('os').environ['TASK_INDEX'])", primary=True),
        job("worker", "print('hello from', __import__('os').environ['TASK_INDEX'])", replicas=3),
    )
    assert status.phase is Phase.SUCCEEDED
    assert [(role.role, role.succeeded, role.desired) for role in status.roles] == [
        ("chief", 1, 1),
        ("worker", 3, 3),
    ]
    assert machine.texts("worker") == ["hello from 0", "hello from 1", "hello from 2"]
    assert machine.directory().log_path.read_text() == ""


def test_a_failed_pod_is_replaced(machine: Machine, tmp_path: Path) -> None:
    status = machine.run(job("chief", fails_times(tmp_path / "f", 2), primary=True, backoffLimit=2))
    assert status.phase is Phase.SUCCEEDED
    assert status.roles[0].restarts == 2
    assert status.roles[0].failed == 2
    attempts = {line.name for line in (machine.directory().pod("demo-chief-0")).glob("log.*")}
    assert attempts == {"log.0", "log.1", "log.2"}


def test_backoff_limit_ends_a_job(machine: Machine) -> None:
    status = machine.run(job("chief", "raise SystemExit(3)", primary=True, backoffLimit=1))
    assert status.phase is Phase.FAILED
    assert status.reason == "BackoffLimitExceeded"
    assert status.tasks[0].exit_code == 3
    assert status.roles[0].restarts == 1


def test_backoff_limit_per_index_is_each_index_own(machine: Machine, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    code = (
        "import os; second = os.environ['TASK_INDEX'] == '1'; "
        f"second and open({str(tries)!r}, 'a').write('x'); raise SystemExit(second)"
    )
    wait = (
        f"import os, time\nwhile not os.path.exists({str(tries)!r}) or os.path.getsize({str(tries)!r}) < 3: "
        "time.sleep(0.05)\ntime.sleep(0.7)"
    )
    status = machine.run(
        job("chief", wait, primary=True),
        job("worker", code, replicas=3, backoffLimitPerIndex=2),
    )
    assert status.phase is Phase.SUCCEEDED, "the primary Job's end is the run's"
    worker = status.roles[1]
    assert (worker.phase, worker.reason) == (Phase.FAILED, "FailedIndexes")
    assert (worker.succeeded, worker.restarts) == (2, 2)
    (shown,) = [
        item for item in (machine.directory().state() or {})["jobs"] if "worker" in item["metadata"]["name"]
    ]
    assert shown["status"]["completedIndexes"] == "0,2"
    assert shown["status"]["failedIndexes"] == "1"


def test_max_failed_indexes_stops_the_others(machine: Machine) -> None:
    code = f"import os\nif os.environ['TASK_INDEX'] == '0': raise SystemExit(1)\n{WAIT}"
    status = machine.run(
        job("worker", code, replicas=2, primary=True, backoffLimitPerIndex=0, maxFailedIndexes=0)
    )
    assert (status.phase, status.reason) == (Phase.FAILED, "MaxFailedIndexesExceeded")
    assert [task.deleted for task in status.tasks] == [False, True]
    assert [task.index for task in status.failures] == [0]


@pytest.mark.parametrize(
    ("action", "restarts", "reason"), [("FailJob", 0, "PodFailurePolicy"), ("Count", 3, "")]
)
def test_pod_failure_policy(
    machine: Machine, tmp_path: Path, action: str, restarts: int, reason: str
) -> None:
    rule = {
        "action": action,
        "onExitCodes": {"containerName": "tensorflow", "operator": "In", "values": [70]},
    }
    status = machine.run(
        job(
            "chief",
            fails_times(tmp_path / "f", 3, code=70),
            primary=True,
            backoffLimit=3,
            podFailurePolicy={"rules": [rule]},
        )
    )
    assert status.roles[0].restarts == restarts
    assert (status.phase is Phase.FAILED) == (action == "FailJob")
    if reason:
        assert status.reason == reason
        assert "failed with exit code 70 matching FailJob rule at index 0" in status.message


def test_ignored_failures_do_not_count(machine: Machine, tmp_path: Path) -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}}
    status = machine.run(
        job(
            "chief",
            fails_times(tmp_path / "f", 3, code=75),
            primary=True,
            backoffLimit=0,
            podFailurePolicy={"rules": [rule]},
        )
    )
    assert status.phase is Phase.SUCCEEDED
    assert (status.roles[0].restarts, status.roles[0].failed) == (3, 0)


def test_a_task_is_killed_as_by_a_crash(machine: Machine, tmp_path: Path) -> None:
    again = tmp_path / "again"
    code = f"import pathlib\nif pathlib.Path({str(again)!r}).exists(): raise SystemExit\n{WAIT}"
    machine.submit(job("chief", code, primary=True, backoffLimit=2), job("worker", "pass", replicas=2))
    machine.printed("up")
    with pytest.raises(NotFoundError, match="run demo has no task worker-7"):
        machine.backend.kill("demo", "default", "worker-7")
    eventually(
        lambda: all(task.phase is Phase.SUCCEEDED for task in machine.status().tasks[1:]), "the workers"
    )
    with pytest.raises(ConflictError, match=r"worker-1 of run demo is not running\nIt has succeeded\.$"):
        machine.backend.kill("demo", "default", "worker-1")
    again.touch()
    machine.backend.kill("demo", "default", "chief-0")
    status = machine.end()
    assert status.phase is Phase.SUCCEEDED
    assert (status.roles[0].restarts, status.roles[0].failed) == (1, 1)
    assert status.tasks[0].before is not None
    assert status.tasks[0].before.exit_code == 137


def test_active_deadline(machine: Machine) -> None:
    status = machine.run(job("chief", WAIT, primary=True, activeDeadlineSeconds=1), job("worker", WAIT))
    assert (status.phase, status.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert status.message == "Job was active longer than specified deadline"
    assert status.roles[1].reason == "RunFailed"
    assert status.failures == ()


@pytest.mark.parametrize(("role", "replicas"), [("ps", 1), ("worker", 2)])
def test_a_run_that_cannot_go_on_is_ended(machine: Machine, role: str, replicas: int) -> None:
    """TensorFlow's coordinator would wait for ever."""
    status = machine.run(
        job("chief", WAIT, primary=True),
        job(role, "print('no space left'); raise SystemExit(3)", replicas=replicas, backoffLimit=1),
        job("evaluator", WAIT),
    )
    assert (status.phase, status.reason) == (Phase.FAILED, "RunFailed")
    assert f"Stopped, since demo-{role} has failed (demo-{role}-" in status.message
    assert "ended with exit code 3), and the run cannot go on without it" in status.message
    (failure,) = status.failures
    assert (failure.role, failure.exit_code) == (role, 3)
    assert status.roles[2].reason == "RunFailed"


def test_a_primary_between_two_attempts_is_ended_too(machine: Machine) -> None:
    machine.settings = SupervisorSettings(backoff=600, backoff_limit=600, failed_seconds=0.3)
    machine.backend = LocalBackend(machine.root, machine.settings)
    status = machine.run(
        job("chief", "raise SystemExit(1)", primary=True, backoffLimit=5),
        job("ps", "raise SystemExit(3)", backoffLimit=0),
    )
    assert (status.phase, status.reason) == (Phase.FAILED, "RunFailed")


@pytest.mark.parametrize(
    ("role", "code"),
    [
        ("evaluator", "raise SystemExit(3)"),
        ("worker", "import os; raise SystemExit(os.environ['TASK_INDEX'] == '0')"),
    ],
)
def test_a_run_that_can_go_on_does(machine: Machine, role: str, code: str) -> None:
    """The run goes on without its evaluator; and with released workers, one of which had failed
    long before.
    """
    status = machine.run(
        job("chief", "import time; time.sleep(2)", primary=True),
        job(role, code, replicas=1 if role == "evaluator" else 2, backoffLimitPerIndex=0),
    )
    assert status.phase is Phase.SUCCEEDED
    assert status.roles[1].phase is Phase.FAILED


def test_a_failed_primary_takes_the_others_along(machine: Machine) -> None:
    status = machine.run(
        job("chief", "raise SystemExit(1)", primary=True, backoffLimit=0),
        job("worker", WAIT, replicas=2, backoffLimitPerIndex=3),
    )
    assert status.phase is Phase.FAILED
    assert (status.roles[1].phase, status.roles[1].reason) == (Phase.FAILED, "RunFailed")
    assert [task.role for task in status.failures] == ["chief"]
    assert machine.processes() == []


def test_servers_stay_while_a_chief_that_was_stopped_saves(machine: Machine) -> None:
    """The servers have the chief's variables."""
    saves = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), print('saved'), sys.exit(143)))\n"
        "print('up')\n"
        "time.sleep(600)"
    )
    exits = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntime.sleep(600)"
    status = machine.run(
        job("chief", saves, primary=True, activeDeadlineSeconds=1), job("ps", exits), job("evaluator", exits)
    )
    assert "saved" in machine.texts("chief")
    chief, *others = status.tasks
    assert all((task.finished or 0.0) > (chief.finished or 0.0) for task in others)
    assert [role.reason for role in status.roles] == ["DeadlineExceeded", "RunFailed", "RunFailed"]


def test_after_success_the_others_have_a_while_to_end(machine: Machine, tmp_path: Path) -> None:
    code = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)"
    status = machine.run(
        job("chief", f"open({str(tmp_path / 'go')!r}, 'w')", primary=True), job("evaluator", code)
    )
    assert [role.phase for role in status.roles] == [Phase.SUCCEEDED, Phase.SUCCEEDED]


def test_after_success_whoever_stays_is_stopped(machine: Machine) -> None:
    status = machine.run(job("chief", "pass", primary=True), job("ps", WAIT))
    assert status.phase is Phase.SUCCEEDED
    assert (status.roles[1].phase, status.roles[1].reason) == (Phase.FAILED, "RunEnded")
    assert "1 s after demo-chief had succeeded" in status.roles[1].message


def test_success_policy(machine: Machine) -> None:
    code = f"import os\nif os.environ['TASK_INDEX'] == '0': raise SystemExit(0)\n{WAIT}"
    status = machine.run(
        job("worker", code, replicas=3, primary=True, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    )
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, "SuccessPolicy")


def test_a_signal_gives_a_containers_exit_code(machine: Machine) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    status = machine.run(job("chief", code, primary=True, backoffLimit=0))
    assert status.tasks[0].exit_code == 137


def test_a_killed_worker_comes_back_with_its_address(machine: Machine) -> None:
    address = "demo-worker-0.demo:2222"
    env = [{"name": "ADDRESS", "value": address}]
    worker = job(
        "worker", f"import os; print(os.getpid(), os.environ['ADDRESS'], flush=True); {WAIT}", env=env
    )
    chief = job("chief", "import time; time.sleep(600)", primary=True)
    machine.submit(chief, worker, addresses=[address])
    first = eventually(lambda: machine.texts("worker"), "the worker's first line")[0]
    kill(int(first.split()[0]))
    eventually(lambda: machine.status().roles[1].restarts == 1, "a restart")
    lines = eventually(lambda: len(machine.lines("worker")) >= 3 and machine.lines("worker"), "a second line")
    second = next(line.text for line in lines if line.attempt == 1)
    assert first.split()[1] == second.split()[1] != address


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(machine: Machine) -> None:
    status = machine.run(
        job("chief", STUBBORN, primary=True, activeDeadlineSeconds=1, grace=1),
    )
    assert status.tasks[0].exit_code == 137


def test_suspend_and_resume(machine: Machine) -> None:
    machine.submit(job("chief", WAIT, primary=True), job("worker", WAIT, replicas=2))
    eventually(lambda: machine.texts().count("up") == 3, "three tasks")
    machine.backend.suspend("demo", "default")
    eventually(lambda: not machine.processes(), "no process while suspended")
    status = machine.status()
    assert (status.phase, status.ended) == (Phase.SUSPENDED, False)
    machine.backend.resume("demo", "default")
    eventually(lambda: machine.texts().count("up") == 6, "three tasks again")
    status = machine.status()
    assert status.phase is Phase.RUNNING
    assert [role.restarts for role in status.roles] == [0, 0], "a suspension is no failure"


def test_suspending_leaves_alone_who_is_done(machine: Machine) -> None:
    machine.submit(job("chief", WAIT, primary=True), job("worker", "pass"))
    eventually(lambda: machine.status().roles[1].succeeded, "the worker's end")
    machine.backend.suspend("demo", "default")
    eventually(lambda: not machine.processes(), "no process while suspended")
    machine.backend.resume("demo", "default")
    eventually(machine.processes, "the chief again")
    assert machine.status().roles[1].succeeded == 1


def test_a_run_may_begin_suspended(machine: Machine) -> None:
    machine.submit(job("chief", "print('up')", primary=True, suspend=True))
    eventually(lambda: machine.directory().state(), "the supervisor")
    assert machine.status().phase is Phase.SUSPENDED
    assert machine.texts() == []
    machine.backend.resume("demo", "default")
    assert machine.end().phase is Phase.SUCCEEDED
    with pytest.raises(ConflictError, match="has ended"):
        machine.backend.suspend("demo", "default")


def test_a_name_is_used_by_one_run_at_a_time(machine: Machine) -> None:
    machine.submit(job("chief", WAIT, primary=True))
    with pytest.raises(ConflictError, match="run demo is still running"):
        machine.submit(job("chief", WAIT, primary=True))
    machine.printed("up")
    machine.submit(job("chief", "print('the other')", primary=True, run="other"), run="other")
    assert machine.end("other").phase is Phase.SUCCEEDED


def test_a_run_that_goes_on_is_replaced(machine: Machine) -> None:
    machine.submit(job("chief", WAIT, primary=True))
    machine.printed("up")
    plan = machine.plan(job("chief", "print('the next')", primary=True))
    machine.backend.submit(plan, detach=True, replace=True)
    assert machine.end().phase is Phase.SUCCEEDED
    assert machine.texts() == ["the next"]


def test_a_finished_runs_name_can_be_used_again(machine: Machine) -> None:
    machine.run(job("chief", "print('first')", primary=True))
    machine.run(job("chief", "print('second')", primary=True))
    assert machine.texts() == ["second"]


def test_two_runs_at_once_have_different_ports(machine: Machine) -> None:
    addresses = [f"demo-worker-{index}.demo:2222" for index in range(20)]
    for run in ("one", "two"):
        machine.submit(job("chief", WAIT, primary=True, run=run), run=run, addresses=addresses)
    submissions = [machine.directory(run).submission() for run in ("one", "two")]
    used = [set(submission.addresses.values()) for submission in submissions if submission]
    assert [len(addresses) for addresses in used] == [20, 20]
    assert not used[0] & used[1]


def test_a_finished_run_is_removed_when_its_time_is_over(machine: Machine) -> None:
    machine.run(job("chief", "pass", primary=True, ttlSecondsAfterFinished=3600))
    assert machine.status().phase is Phase.SUCCEEDED
    machine.submit(job("chief", "pass", primary=True, run="brief", ttlSecondsAfterFinished=0), run="brief")
    machine.end("brief")
    eventually(lambda: not machine.directory("brief").alive(), "the supervisor's end")
    assert [status.run for status in machine.backend.runs()] == ["demo"]
    with pytest.raises(NotFoundError, match="no run brief"):
        machine.status("brief")


def test_delete_stops_the_run_and_leaves_nothing(machine: Machine) -> None:
    machine.submit(job("chief", WAIT, primary=True), job("worker", STUBBORN, grace=1))
    eventually(lambda: machine.texts().count("up") == 2, "two tasks")
    pids = machine.processes()
    assert len(pids) == 2
    machine.backend.delete("demo", "default")
    assert not machine.directory().path.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert list((machine.root / "runs" / "default").iterdir()) == []
    for ask in (machine.backend.status, machine.backend.delete, machine.backend.suspend):
        with pytest.raises(NotFoundError, match="there is no run demo in namespace default"):
            ask("demo", "default")


def test_status_and_logs_work_from_anywhere(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.submit(job("chief", WAIT, primary=True))
    machine.printed("up")
    monkeypatch.chdir("/")
    elsewhere = LocalBackend(machine.root)
    assert elsewhere.status("demo", "default").phase is Phase.RUNNING
    assert [status.run for status in elsewhere.runs()] == ["demo"]
    elsewhere.delete("demo", "default")
    assert elsewhere.runs() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"container": {"command": ["no-such-program"]}}, "command no-such-program is not on this machine"),
        ({"container": {"command": []}}, "the image's own command is not known here"),
        ({"container": {"workingDir": "/no/such/folder"}}, "workingDir /no/such/folder is not on"),
        (
            {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            "env KEY: key k of Secret s is not on this machine",
        ),
        ({"mounts": {"/data": {"nfs": {"server": "s", "path": "/"}}}}, "volume volume-0 (nfs)"),
        ({"mounts": {"/data": {"hostPath": {"path": "/no/such/folder"}}}}, "volume volume-0: /no/such"),
    ],
)
def test_what_cannot_run_here_is_refused_at_once(
    machine: Machine, change: dict[str, object], message: str
) -> None:
    with pytest.raises(BackendError) as refused:
        machine.submit(job("chief", WAIT, primary=True, **change))  # type: ignore[arg-type]
    assert f"chief: {message}" in refused.value.message
    assert machine.backend.runs() == []


def test_what_has_no_meaning_here_is_named_once(machine: Machine) -> None:
    chief = job(
        "chief",
        "pass",
        primary=True,
        container={"image": "i", "resources": {"limits": {"cpu": 1}}},
        pod={"nodeSelector": {"gpu": "yes"}},
    )
    named = machine.submit(chief, {"kind": "NetworkPolicy", "metadata": {"name": "demo"}})
    left_out, _ = named.splitlines()
    assert left_out == "ignored locally: image, resources, nodeSelector, NetworkPolicy"


def test_only_what_the_file_asks_for_is_named(machine: Machine) -> None:
    chief = job("chief", "pass", primary=True, container={"image": "i", "resources": {"limits": {"cpu": 1}}})
    spec = {"spec": {"worker": {"podTemplate": {"spec": {"containers": [{"image": "mine"}]}}}}}
    chief["metadata"]["annotations"]["tf-launcher.dev/spec"] = json.dumps(spec)
    named = machine.submit(chief, {"kind": "NetworkPolicy", "metadata": {"name": "demo"}})
    assert named.splitlines()[0] == "ignored locally: image"


@pytest.mark.parametrize("policy", ["All", "None"])
def test_a_clean_policy_that_is_not_this_machine_s_is_named(machine: Machine, policy: str) -> None:
    chief = job("chief", "pass", primary=True)
    spec = {"spec": {"runPolicy": {"cleanPolicy": policy}}}
    chief["metadata"]["annotations"]["tf-launcher.dev/spec"] = json.dumps(spec)
    what = f"cleanPolicy {policy} (tasks that still run are stopped, logs stay)"
    assert machine.submit(chief).splitlines()[0] == f"ignored locally: {what}"


def test_a_command_that_cannot_be_executed_fails_as_in_kubernetes(machine: Machine) -> None:
    too_long = [{"name": "LONG", "value": "x" * 200_000}]
    status = machine.run(job("chief", "pass", primary=True, env=too_long, backoffLimit=1))
    task = status.tasks[0]
    assert status.phase is Phase.FAILED
    assert (task.exit_code, task.reason) == (128, "StartError")
    assert "too long" in task.message


@pytest.mark.parametrize(
    ("interpreter", "message"), [("false", "exit status 1"), ("true", "ended at once|pipe")]
)
def test_a_supervisor_that_does_not_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, interpreter: str, message: str
) -> None:
    program = shutil.which(interpreter)
    assert program is not None
    monkeypatch.setattr("launcher.backends.local.supervisor.start.sys.executable", program)
    with pytest.raises(BackendError, match=f"(?i)the run's supervisor cannot be started: .*({message})"):
        machine.submit(job("chief", [program], primary=True))
    monkeypatch.undo()
    assert machine.run(job("chief", "pass", primary=True)).phase is Phase.SUCCEEDED


@linux_only
def test_what_was_prepared_in_vain_goes_away(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PREPARED_BY", str(tmp_path))
    machine.backend.prepare()
    machine.backend.prepare()
    (guard,) = with_variable(f"PREPARED_BY={tmp_path}")
    machine.backend = LocalBackend(machine.root, machine.settings)
    eventually(lambda: not Path(f"/proc/{guard}").exists(), "the guard's end")


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    machine = Machine(tmp_path / "file" / "state", SupervisorSettings())
    with pytest.raises(BackendError, match="cannot keep the run's files under"):
        machine.submit(job("chief", "pass", primary=True))


@linux_only
def test_a_full_disk_ends_the_run_with_the_reason(machine: Machine) -> None:
    """The pod's directory cannot be made, as on a full disk: here a file has its name."""
    machine.submit(job("chief", WAIT, primary=True, suspend=True, backoffLimit=0))
    (machine.directory().path / "pods").write_text("")
    machine.backend.resume("demo", "default")
    status = machine.end()
    assert status.phase is Phase.FAILED
    assert status.tasks[0].reason == "StartError"


@linux_only
def test_a_state_that_cannot_be_written_is_written_later(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.backends.local.backend._ANSWER_SECONDS", 0.5)
    machine.submit(job("chief", "pass", primary=True, suspend=True))
    eventually(lambda: machine.directory().state(), "the supervisor")
    in_the_way = machine.directory().path / ".state.json.new"
    in_the_way.mkdir()
    with pytest.raises(BackendError, match="run demo does not answer"):
        machine.backend.resume("demo", "default")
    in_the_way.rmdir()
    assert machine.end().phase is Phase.SUCCEEDED
    assert "Is a directory" in machine.directory().log_path.read_text()


def test_a_port_in_use_is_named(machine: Machine) -> None:
    import socket

    address = "demo-chief-0.demo:2222"
    machine.backend = LocalBackend(machine.root, machine.settings, allow_network=True)
    machine.submit(job("chief", WAIT, primary=True, suspend=True), addresses=[address])
    submission = machine.directory().submission()
    assert submission is not None
    port = int(submission.addresses[address].rpartition(":")[2])
    with socket.create_server(("", port)):
        machine.backend.resume("demo", "default")
        message = eventually(
            lambda: machine.status().tasks and machine.status().tasks[0].message, "the task's message"
        )
    assert message == f"port {port} is in use by another program"


def test_the_supervisor_sleeps(machine: Machine) -> None:
    """The supervisor does not poll while nothing happens. The test counts wake-ups, not seconds."""
    machine.submit(job("chief", WAIT, primary=True), job("worker", WAIT, replicas=3))
    eventually(lambda: machine.texts().count("up") == 4, "four tasks")
    _, supervisor = machine.supervisor()

    def switches() -> int:
        text = Path(f"/proc/{supervisor}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("voluntary_"))

    def sleeps() -> bool:
        before = switches()
        time.sleep(1.0)
        return switches() - before <= 2

    # On a busy machine it has still to hear of the last task's start.
    eventually(sleeps, "a second without work")


def test_a_supervisor_that_comes_too_late_runs_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.backends.local.supervisor.start._TAKEN_SECONDS", 1e-6)
    with pytest.raises(BackendError, match="the run's supervisor cannot be started: timed out"):
        machine.submit(job("chief", WAIT, primary=True))
    assert not machine.directory().path.exists()
    monkeypatch.undo()
    machine.submit(job("chief", "print('up')", primary=True))
    assert machine.end().phase is Phase.SUCCEEDED
    assert machine.texts() == ["up"]
