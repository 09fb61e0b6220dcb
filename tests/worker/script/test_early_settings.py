"""Settings that come too late in a script."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from worker.script import early_settings


def too_late(*_: Any) -> None:
    raise RuntimeError("Physical devices cannot be modified after being initialized")


def wrong(*_: Any) -> None:
    raise RuntimeError("no such device")


def test_a_gpu_s_memory_growth_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What TensorFlow raises on a machine with GPUs, once they are in use."""
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", too_late)
    notices: list[str] = []
    with early_settings.passed_over(notices.append):
        tf.config.experimental.set_memory_growth("GPU:0", True)
        tf.config.experimental.set_memory_growth("GPU:1", True)
    assert len(notices) == 1
    assert "env: [{name: TF_FORCE_GPU_ALLOW_GROWTH, value: 'true'}] does the same" in notices[0]
    assert tf.config.experimental.set_memory_growth is too_late


def test_another_error_is_the_script_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "set_visible_devices", wrong)
    with early_settings.passed_over(print), pytest.raises(RuntimeError, match="no such device"):
        tf.config.set_visible_devices([], "GPU")


def test_what_comes_in_time_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    notices: list[str] = []
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", numbers.append)
    with early_settings.passed_over(notices.append):
        tf.config.threading.set_intra_op_parallelism_threads(3)
    assert (numbers, notices) == ([3], [])
