"""`make test-changed`: a changed file reaches the tests that use it, and no others where that can be told."""

from __future__ import annotations

import functools

import pytest

from tests import changed

BATCH_SIZE = "tests/worker/input/test_batch_size.py"
ROLES = "tests/unit/plan/test_roles.py"
RENDERING = "tests/unit/plan/test_rendering.py"
KERAS_3 = "tests/worker/whole/test_keras_3.py"
PARAMETER_SERVER = "tests/worker/whole/test_parameter_server.py"
API_SERVER = "tests/api/deploy/test_submission.py"
RENEWED = "tests/worker/matrix/test_shapes.py"
CLUSTER = ("tests/kind/", "tests/images/", "tests/peers/")
"""Never chosen."""
TOOLS = ("tests/worker/tensorflow_",)
"""For people: tensorflow_versions.py, whose whole name would be found here."""


@functools.cache
def repository() -> tuple[dict[str, str], changed.Imports]:
    texts = changed.python_files()
    return texts, changed.imports_of(texts)


def reached(path: str) -> set[str]:
    return set(changed.reached([path], *repository()))


@pytest.mark.parametrize(
    ("path", "tests", "no_tests"),
    [
        (ROLES, {ROLES}, {RENDERING}),
        ("launcher/plan/roles.py", {ROLES, RENDERING, API_SERVER}, {BATCH_SIZE, KERAS_3}),
        ("worker/input/batch_size.py", {BATCH_SIZE, KERAS_3, RENEWED}, {ROLES, API_SERVER}),
        ("worker/contract/records.py", {BATCH_SIZE, API_SERVER}, set()),
        ("worker/input/gone.py", {BATCH_SIZE, KERAS_3}, {ROLES, API_SERVER}),
        ("manifests/job.yaml.j2", {RENDERING, API_SERVER}, {BATCH_SIZE}),
        ("tests/worker/programs/three.py", {KERAS_3}, {PARAMETER_SERVER, ROLES}),
        ("tests/worker/programs/tiny.py", {KERAS_3, PARAMETER_SERVER, BATCH_SIZE}, {ROLES}),
        ("tests/worker/conftest.py", {BATCH_SIZE, KERAS_3}, {ROLES, API_SERVER}),
        ("tests/golden/every-field.yaml", {RENDERING}, {ROLES, BATCH_SIZE}),
        ("docs/new.md", {"tests/test_docs.py"}, {ROLES, BATCH_SIZE}),
        ("requirements/lock.txt", {ROLES, BATCH_SIZE, API_SERVER}, {"tests/kind/test_demo.py"}),
        ("-".join(("nobody", "names", "it")), {ROLES, BATCH_SIZE, API_SERVER}, set()),
    ],
)
def test_what_uses_it_and_no_more(path: str, tests: set[str], no_tests: set[str]) -> None:
    assert tests <= reached(path)
    assert not no_tests & reached(path)


def test_every_module_of_the_product_is_reached_by_some_test() -> None:
    assert not [
        path for path in repository()[0] if path.startswith(("launcher/", "worker/")) and not reached(path)
    ]


def test_every_program_is_reached_by_some_test() -> None:
    folders = ("examples/", "docs/", "charts/", "benchmarks/programs/", "tests/")
    unreached = [path for path in repository()[0] if path.startswith(folders) and not reached(path)]
    assert not [path for path in unreached if not path.startswith((*CLUSTER, *TOOLS))]


def test_what_differs_from_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"merge-base": ["base"], "diff": ["worker/task.py"], "ls-files": ["tests/new.py"]}
    monkeypatch.setattr(changed, "_git", lambda command, *_: answers[command])
    assert changed.changed_files("main") == ["worker/task.py", "tests/new.py"]
