"""The demo on an image with TensorFlow and nothing of the launcher's: the runtime travels with the run."""

from __future__ import annotations

import pytest

from tests.api.plain_requests import wait_for
from tests.kind.conftest import PLAIN_IMAGE
from tests.kind.runs import DEMO, Runs, accuracy
from worker.contract.records import Event

KERAS_3_RUN = "every-method"
KERAS_3 = DEMO.parents[1] / KERAS_3_RUN / "cluster.yaml"
TASKS = {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}


pytestmark = pytest.mark.skipif(
    not PLAIN_IMAGE, reason="LAUNCHER_TEST_PLAIN_IMAGE names no image (`make plain-image`)"
)


def test_the_demo_trains_and_leaves_nothing(runs: Runs) -> None:
    runs.image = PLAIN_IMAGE
    done = runs.launcher("submit", str(DEMO), *runs.settings())
    assert done.returncode == 0, done.stdout + done.stderr
    # It trains on fewer images than the launcher's own image has.
    assert accuracy(done.stdout) >= 0.75
    for role, count in TASKS.items():
        assert runs.job(role)["status"]["succeeded"] == count
        (devices, *_) = runs.records(role, event=Event.DEVICES)
        assert "that travels with the run" in devices.fields["runtime"]
    assert runs.of("delete").returncode == 0
    assert wait_for(lambda: not runs.left(), 90), runs.left()


def test_a_model_of_keras_3_trains_on_two_workers(runs: Runs) -> None:
    runs.image = PLAIN_IMAGE
    done = runs.launcher("submit", str(KERAS_3), *runs.settings())
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) >= 0.70
    assert runs.job("worker", KERAS_3_RUN)["status"]["succeeded"] == 2
    assert runs.of("delete", run=KERAS_3_RUN).returncode == 0
    assert wait_for(lambda: not runs.left(), 90), runs.left()
