"""A model directory at gs://, by TensorFlow's own client and a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gcs_server import BUCKET, gcs_server, objects
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_chief_that_is_killed_resumes_from_its_checkpoint(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gcs_server(tmp_path / "gcs") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        cluster = make_cluster(
            strategy="OneDevice",
            replicas={"chief": 1},
            model_dir=f"gs://{BUCKET}/run",
            parameters={"epochs": 3, "stepsPerEpoch": 20, "waitMilliseconds": 20},
        )
        first = cluster.start("chief")
        first.eventually(lambda: "checkpoints/checkpoint" in objects(environment, "run"), "a checkpoint")
        first.kill()
        saved = max(
            int(name[len("checkpoints/ckpt-") : -len(".index")])
            for name in objects(environment, "run")
            if name.startswith("checkpoints/ckpt-") and name.endswith(".index")
        )

        second = cluster.start("chief")
        assert second.until(Event.TRAINING).fields["initial_epoch"] == saved
        assert second.ended() == ExitCode.DONE, second.output
        assert second.until(Event.EXPORTED).fields["path"] == f"gs://{BUCKET}/run/export/1"
        left = objects(environment, "run")
        assert {"run-state.json", "export/1/saved_model.pb", "checkpoints/ckpt-3.index"} <= set(left)
        assert "lease.json" not in left
        assert [name for name in left if name.startswith("logs/train/events.out.")]
