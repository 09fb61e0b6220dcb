"""The command line on a cluster: it finds a run without its place, and deletes all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import parser
from tests.api.plain_requests import Api, wait_for
from tests.paths import SPECS

SPEC = SPECS / "valid" / "one-task-mirrored.yaml"


def test_a_run_from_submit_to_delete(
    api: Api,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # Retain: no controller here removes the finalizer from a claim.
    settings = [f"metadata.namespace={namespace}", "spec.storage.reclaimPolicy=Retain"]
    submit = ["submit", str(SPEC), "--detach", *(w for s in settings for w in ("--set", s))]
    assert parser.main(submit) == 0
    assert f"status autoencoder -n {namespace}" in capsys.readouterr().out
    (job,) = api.list("Job", namespace)
    # A second submission of the same file changes nothing.
    assert parser.main(submit) == 0
    assert [again["metadata"]["uid"] for again in api.list("Job", namespace)] == [job["metadata"]["uid"]]

    run = ["autoencoder", "-n", namespace]
    assert parser.main(["status", *run]) == 0
    assert "chief" in capsys.readouterr().out
    assert parser.main(["suspend", *run]) == 0
    assert api.list("Job", namespace)[0]["spec"]["suspend"] is True
    assert parser.main(["resume", *run]) == 0
    assert parser.main(["list", "--backend", "kubernetes"]) == 0
    assert "autoencoder" in capsys.readouterr().out
    assert parser.main(["delete", *run]) == 0
    assert wait_for(lambda: not api.list("Job", namespace))
    assert parser.main(["status", *run]) == 3
    assert "there is no run autoencoder" in capsys.readouterr().err
