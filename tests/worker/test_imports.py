"""What of Keras comes with TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker.cluster import ROOT

LOADED = "print(*sorted({'keras', 'tf_keras'} & {*sys.modules}))"


def printed(code: str, legacy: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nfrom worker.imports import import_tensorflow\n{code}"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_USE_LEGACY_KERAS": legacy,
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(("legacy", "package"), [("1", "tf_keras"), ("0", "keras")])
def test_a_server_starts_without_keras_and_could_have_it_later(legacy: str, package: str) -> None:
    code = f"tf = import_tensorflow(keras=False)\n{LOADED}\nprint(tf.keras.Model.__module__)"
    loaded, module = printed(code, legacy)
    assert loaded == ""
    assert module.startswith(f"{package}.")


def test_a_task_that_trains_has_it() -> None:
    assert printed(f"import_tensorflow(keras=True)\n{LOADED}", "1") == ["tf_keras"]
