"""examples/sweep with the real Optuna."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.machine import linux_only
from tests.local.whole.test_demo import SECONDS, Demo
from tests.paths import ROOT

pytestmark = linux_only


@pytest.mark.thorough
def test_each_trial_is_a_run_and_none_is_left(tmp_path: Path) -> None:
    folder = os.environ.get("LAUNCHER_TEST_OPTUNA", "")
    if not folder and importlib.util.find_spec("optuna") is None:
        pytest.skip("no optuna, and LAUNCHER_TEST_OPTUNA names no folder with it (pip install --target)")
    demo = Demo(tmp_path)
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/sweep/sweep.py"), "--backend", "local", "--trials", "3"],
        cwd=tmp_path,
        env={**demo.environment, "PYTHONPATH": f"{ROOT}:{folder}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trials = re.findall(r"^(\d) (COMPLETE|PRUNED) (.*)$", done.stdout, re.MULTILINE)
    assert [number for number, _, _ in trials] == ["0", "1", "2"], done.stdout
    # The first rate learns, the second one is too small for it: Optuna's draws with a seed.
    best = re.search(r"^best: (\d) ([\d.]+)", done.stdout, re.MULTILINE)
    assert best
    assert best[1] != "1"
    assert float(best[2]) > 0.7
    assert "sweep-" not in demo.launcher("list").stdout
    assert demo.tasks() == []
