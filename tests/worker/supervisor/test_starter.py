"""When a fork of the process that has imported TensorFlow is safe."""

from __future__ import annotations

import pytest

from tests.worker.test_without_tensorflow import run_python

FORK = "import {name}\nfrom worker.supervisor import starter\n{before}\nprint(starter.may_fork())"


@pytest.mark.parametrize(
    ("before", "safe"),
    [
        ("", True),
        (
            "import threading, time; threading.Thread(target=time.sleep, args=(5,), daemon=True).start()",
            False,
        ),
        ("import os; driver = os.open('/dev/ptmx', os.O_RDWR)", False),
    ],
    ids=["nothing", "thread", "device"],
)
def test_a_fork_must_not_lose_a_thread_or_share_a_device(before: str, safe: bool) -> None:
    done = run_python(FORK.format(name="os", before=before))
    assert done.stdout.strip() == str(safe), done.stderr


@pytest.mark.by_day("3", runtime=())
@pytest.mark.parametrize("keras", ["2", "3", "none"])
def test_tensorflow_can_be_forked_when_it_is_only_imported(keras: str) -> None:
    """No thread is left, no device is open, and TensorFlow has not looked for a GPU yet."""
    before = (
        "from worker.runtime import prepare_environment\nfrom worker.imports import import_tensorflow\n"
        f"prepare_environment({int(keras) if keras != 'none' else None})\n"
        f"import_tensorflow(keras={keras != 'none'})\n"
        "from tensorflow.python.eager import context\nassert not context.context()._initialized"
    )
    done = run_python(FORK.format(name="os", before=before))
    assert done.stdout.strip() == "True", done.stderr
