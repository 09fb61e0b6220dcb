"""Two chiefs on one model directory."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.worker import model_files
from tests.worker.cluster import Cluster, eventually
from tests.worker.conftest import MakeCluster
from tests.worker.whole.test_parameter_server import children
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event
from worker.failures import Failure
from worker.process import lease

ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
LONG = {"epochs": 10_000, "waitMilliseconds": 20}


def held(directory: Path, run_id: str) -> lease.Lease:
    return lease.Lease(str(directory), lease.new_holder("mnist", run_id, None, "mnist-chief-0"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease, "STALE_SECONDS", 0.5)
    monkeypatch.setattr(lease, "_LOOK_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_another_run_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    first = held(tmp_path, "1")
    first.claim()
    first.keep(lambda other: None)
    with pytest.raises(Failure, match="belongs to the run 'mnist'") as refused:
        held(tmp_path, "2").claim()
    assert refused.value.exit_code == ExitCode.PROGRAM_ERROR
    assert "wait for its end, delete it, or give this run a directory of its own" in refused.value.message


@pytest.mark.usefixtures("impatient")
def test_another_run_takes_over_from_a_dead_one(tmp_path: Path) -> None:
    held(tmp_path, "1").claim()
    second = held(tmp_path, "2")
    second.claim()
    assert second.renew() is None


@pytest.mark.usefixtures("impatient")
def test_the_same_runs_next_chief_takes_over_at_once_and_the_last_one_hears_of_it(tmp_path: Path) -> None:
    first = held(tmp_path, "1")
    first.claim()
    overtaken = threading.Event()
    first.keep(lambda other: overtaken.set())
    second = held(tmp_path, "1")
    second.claim()
    assert overtaken.wait(30)
    first.give_back()
    assert second.renew() is None, "the first must not give away what is the second's"
    second.give_back()
    assert not (tmp_path / "lease.json").exists()


def test_a_damaged_or_removed_lease_is_written_anew(tmp_path: Path) -> None:
    first = held(tmp_path, "1")
    first.claim()
    for damage in (lambda: (tmp_path / "lease.json").write_text("{"), (tmp_path / "lease.json").unlink):
        damage()
        assert first.renew() is None
        assert json.loads((tmp_path / "lease.json").read_text())["id"] == "1"


@pytest.mark.thorough
def test_a_second_run_is_refused_and_touches_nothing(make_cluster: MakeCluster) -> None:
    first = make_cluster(**ONE, parameters=LONG)
    training = first.start("chief")
    training.until(Event.PROGRESS, epoch=1, epoch_end=True)
    second = make_cluster(**ONE, run_id="2", run="tiny-two")
    refused = second.start("chief")
    assert refused.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = refused.records(Event.FAILED)
    assert "belongs to the run 'tiny' (tiny-chief-0, since " in failed.fields["message"]
    state = model_files.state(first.model_dir)
    assert state.pop("life")["losses"] == 0
    assert state == {"runId": "1", "phase": "training", "outcome": "", "export": 1}
    assert training.process.poll() is None


@pytest.mark.thorough
def test_a_frozen_chief_that_was_overtaken_leaves_when_it_thaws(make_cluster: MakeCluster) -> None:
    cluster: Cluster = make_cluster(**ONE, parameters=LONG)
    frozen = cluster.start("chief")
    frozen.until(Event.PROGRESS, epoch=1, epoch_end=True)
    processes = [frozen.process.pid, *children(frozen.process.pid)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    next_one = cluster.start("chief")
    next_one.until(Event.TRAINING)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    assert frozen.ended() == ExitCode.RETRYABLE
    eventually(lambda: bool(frozen.records(Event.FAILED)), "it says why")
    assert "has taken over spec.modelDir" in frozen.records(Event.FAILED)[-1].fields["message"]
    assert next_one.process.poll() is None


def test_a_lease_is_renewed_no_more_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next holder is another process of the same run, which must not find itself overtaken."""
    monkeypatch.setattr("worker.process.lease.RENEW_SECONDS", 0.01)
    mine, next_one = (
        lease.Lease(str(tmp_path), lease.Holder("tiny", "1", name, "tiny-chief-0", "")) for name in "ab"
    )
    lost: list[lease.Holder] = []
    mine.claim()
    mine.keep(lost.append)
    file = tmp_path / "lease.json"
    eventually(lambda: '"counter": 0' not in file.read_text(), "it is renewed")
    assert mine.stop(5.0)
    next_one.claim()
    assert next_one.renew() is None
    assert lost == []
