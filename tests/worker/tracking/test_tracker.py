"""Names of metrics and parameters: MLflow refuses a request for one of them that it does not take."""

from __future__ import annotations

import posixpath

import pytest

from worker.tracking.tracker import as_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("top 5/k-1.a", "top 5/k-1.a"),
        ("50%:é", "50___"),
        ("/a", "a"),
        ("a//b/", "a/b"),
        ("a/./../b", "a/b"),
        ("..a", "a"),
        ("..", "_"),
        ("", "_"),
        ("x" * 249 + "/y", "x" * 249),
    ],
)
def test_a_name_is_a_path_below_a_folder(text: str, name: str) -> None:
    assert as_name(text) == name
    assert posixpath.normpath(name) == name  # which MLflow asks for
