"""Keras 3 where it is right: as many steps as Keras 2, and the same losses. Elsewhere it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.conftest import MakeCluster
from tests.worker.test_fitting import ONE, TWO_CPUS, losses
from worker.contract import Event, ExitCode

pytestmark = pytest.mark.thorough

PARAMETERS = {"epochs": 3, "stepsPerEpoch": 10, "stepsPerExecution": 4}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of Keras 2 on one device."""
    from tests.worker.cluster import running

    with running(tmp_path_factory.mktemp("keras-2"), **ONE, parameters=PARAMETERS) as cluster:
        chief = cluster.start("chief")
        assert chief.ended() == 0
        return losses(chief)


@pytest.mark.parametrize(
    ("options", "packed"),
    [(ONE, 2), ({**TWO_CPUS, "strategy": "Mirrored"}, 1), ({**TWO_CPUS, "strategy": "CentralStorage"}, 2)],
    ids=["OneDevice", "Mirrored", "CentralStorage"],
)
def test_the_same_steps_and_losses(
    make_cluster: MakeCluster, expected: list[float], options: dict[str, Any], packed: int
) -> None:
    cluster = make_cluster(**options, keras=3, parameters=PARAMETERS)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    assert losses(chief) == pytest.approx(expected, rel=1e-4)
    assert model_files.iterations(cluster.model_dir, 3) == 30, "4 does not divide 10, and no step is added"
    notice = chief.until(Event.NOTICE).fields["message"]
    assert notice.startswith(f"stepsPerExecution is {packed}, not 4: ")
    assert (cluster.model_dir / "export" / "1" / "saved_model.pb").exists()
    assert list((cluster.model_dir / "logs" / "train").iterdir())
    assert [record.fields["epoch"] for record in chief.records(Event.EVALUATION)] == [1, 2, 3]


def test_a_killed_run_goes_on_from_its_checkpoint(make_cluster: MakeCluster, expected: list[float]) -> None:
    slow = make_cluster(**ONE, keras=3, parameters={**PARAMETERS, "epochs": 900})
    chief = slow.start("chief")
    chief.until(Event.PROGRESS, epoch=2, epoch_end=True)
    chief.kill()
    done = model_files.epochs(slow.model_dir)[-1]
    again = make_cluster(**ONE, keras=3, parameters={**PARAMETERS, "epochs": done + 1})
    chief = again.start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.TRAINING).fields["initial_epoch"] == done
    assert model_files.iterations(again.model_dir, done + 1) == 10 * (done + 1)


def test_model_fit_on_several_workers_is_refused(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        strategy="MultiWorkerMirrored",
        entrypoint="fitted:Fitted",
        replicas={"worker": 2},
        keras=3,
        parameters=PARAMETERS,
    )
    tasks = cluster.start_all()
    assert {task.ended() for task in tasks.values()} == {ExitCode.PROGRAM_ERROR}
    message = tasks["worker", 0].until(Event.FAILED).fields["message"]
    assert message.startswith("spec.program.keras: 3 fails in Model.fit under MultiWorkerMirrored")
    assert "use 2, or give the program a loss or a train_step" in message
