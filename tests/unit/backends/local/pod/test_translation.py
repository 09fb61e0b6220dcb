"""The cluster's addresses and paths, translated to those of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.local.pod.translation import Translation

A, B = "demo-worker-1.demo:2222", "demo-worker-11.demo:2222"
TRANSLATION = Translation(
    {A: "127.0.0.1:20001", B: "127.0.0.1:20011"},
    {"/model": "/state/model", "/model/inner/": "/state/inner", "/tmp": "/tmp/of/the/pod"},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{A},{B}", "127.0.0.1:20001,127.0.0.1:20011"),
        (f'["{A}"]', '["127.0.0.1:20001"]'),
        (f"grpc://{A}/x", "grpc://127.0.0.1:20001/x"),
        (f"x-{A}", f"x-{A}"),
        (f"{A}2", f"{A}2"),
        ("/model", "/state/model"),
        ("/model/", "/state/model/"),
        ("/model/inner/x", "/state/inner/x"),
        ("/model/innermost", "/state/model/innermost"),
        ("/models", "/models"),
        ("/my/model", "/my/model"),
        ("--dir=/model/x", "--dir=/state/model/x"),
        ("cp /model/a /tmp/b", "cp /state/model/a /tmp/of/the/pod/b"),
        ("/bin:/model/bin:/x", "/bin:/state/model/bin:/x"),
        ("file:///model/x", "file:///state/model/x"),
        ("s3://model/model", "s3://model/model"),
        ("/tmp", "/tmp/of/the/pod"),
        ("", ""),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert TRANSLATION.text(text) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/model", "/state/model"), ("/model/inner", "/state/inner"), ("/model2", None), ("/", None)],
)
def test_paths(path: str, expected: str | None) -> None:
    assert TRANSLATION.path(path) == expected


def test_a_json_file_is_translated_string_by_string() -> None:
    document = {"dir": "/model/x", "say": "see /model", "to": [A, {"n": 1.50, "/model": None}]}
    assert json.loads(TRANSLATION.file(json.dumps(document))) == {
        "dir": "/state/model/x",
        "say": "see /model",
        "to": ["127.0.0.1:20001", {"n": 1.5, "/model": None}],
    }


@pytest.mark.parametrize(
    "content", ["path = '/model'\n", "{not json /model", '{"a":1.50,  "b":2}', "", "[\n]\n"]
)
def test_other_files_are_left_alone(content: str) -> None:
    assert TRANSLATION.file(content) == content


def test_data_that_this_machine_has_are_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "part-1.tfrecord").touch()
    here = str(tmp_path)
    shared = Translation({}, {here: "/pod", "/model": "/state/model"}, [here])
    unshared = Translation({}, {here: "/pod"})
    for below in ("data", "data/", "data/*.tfrecord", "data/new/x", "part-*.tfrecord", "part-1.tfrecord"):
        assert shared.text(f"--in={here}/{below}") == f"--in={here}/{below}"
        assert shared.path(f"{here}/{below}") == f"{here}/{below}".rstrip("/")
        assert json.loads(shared.file(json.dumps({"x": f"{here}/{below}"})))["x"] in (
            f"{here}/{below}",
            f"{here}/{below}".rstrip("/"),
        )
        assert unshared.text(f"{here}/{below}") == f"/pod/{below}"
    for below in ("", "/", "/none", "/none/data", "/none-*"):
        assert shared.text(f"{here}{below}") == f"/pod{below}"
        assert shared.path(f"{here}{below}") == f"/pod{below.rstrip('/')}"
    assert shared.text(f"{here}/data:{here}/none,/model/x") == f"{here}/data:/pod/none,/state/model/x"


@given(st.text())
def test_nothing_is_changed_where_nothing_is_mounted(text: str) -> None:
    assert Translation({}, {}).text(text) == text
    assert Translation({}, {}).file(text) == text
