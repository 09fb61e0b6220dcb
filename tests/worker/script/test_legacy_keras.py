"""A script chooses the Keras behind tf.keras as it does for `python SCRIPT`."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.script import legacy_keras

SET = 'os.environ["TF_USE_LEGACY_KERAS"] = "1"'
DEFAULT = 'os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")'


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("import tensorflow as tf", None, None),
        ("import tensorflow as tf", "1", "1"),
        (f"import os\n{SET}\nimport tensorflow as tf", None, "1"),
        (f"import os\n{SET}\nimport tensorflow as tf", "0", "1"),
        (f"import os\n{DEFAULT}", None, "1"),
        (f"import os\n{DEFAULT}", "0", "0"),
        (f"import os\nif False:\n    {SET}", None, None),
        ("import os\nos.environ['TF_USE_LEGACY_KERAS'] = chosen()", None, None),
        ("no Python", "1", "1"),
    ],
)
def test_the_value_that_tensorflow_reads(
    text: str, environment: str | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    if environment is not None:
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", environment)
    script = tmp_path / "train.py"
    script.write_text(text)
    assert legacy_keras.chosen(script) == expected


def test_a_task_that_has_no_script_takes_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert legacy_keras.chosen(tmp_path / "absent.py") == "1"
