"""A notebook as a script: what stays, and what is left out with a notice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.validation import notebook_to_script
from launcher.validation.notebook_to_script import NotebookError
from worker.contract.notebook_lines import located

INSTALLED = "is left out: program.packages: [{}] installs it in each task"


def book(*cells: str, **metadata: Any) -> bytes:
    """Returns a notebook of format 4 with a text and these code cells."""
    book_cells: list[dict[str, Any]] = [{"cell_type": "markdown", "source": ["# A text\n", "import nothing"]}]
    book_cells += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": book_cells}
    ).encode()


def script(*cells: str) -> notebook_to_script.Script:
    made = notebook_to_script.script(book(*cells), "train.ipynb")
    compile(made.text, "train.ipynb.py", "exec")
    return made


def variables(*cells: str) -> dict[str, Any]:
    """Returns what the script's variables are at its end."""
    namespace: dict[str, Any] = {}
    exec(script(*cells).text, namespace)
    return namespace


def test_cells_run_in_order() -> None:
    assert variables("a = 1", "a += 1\nb = a", "b *= 10")["b"] == 20
    assert variables("display(1)", "")["display"] is print


def test_a_notebook_may_ask_whether_it_is_in_colab() -> None:
    assert variables("in_colab = 'google.colab' in str(get_ipython())")["in_colab"] is False


def test_the_first_lines_indentation_is_nobodys() -> None:
    assert variables("\n  a = 1\n  if a:\n    a = 2")["a"] == 2


def test_a_future_import_stays_the_first_statement() -> None:
    namespace = variables("%matplotlib inline\nfrom __future__ import annotations\ndef f(x: Unknown): ...")
    assert namespace["f"].__annotations__ == {"x": "Unknown"}


@pytest.mark.parametrize(
    ("line", "notice"),
    [
        ("%matplotlib inline", "%matplotlib inline is left out"),
        ("!ls data", "!ls data is left out"),
        ("files = !ls", "files = !ls is left out"),
        ("model?", "model? is left out"),
        ("?model", "?model is left out"),
        (
            "!pip install -q 'keras-hub==0.20' joblib  # new",
            f"!pip install -q 'keras-hub==0.20' joblib  # new {INSTALLED.format('keras-hub==0.20, joblib')}",
        ),
        (
            "%pip install --upgrade keras-hub",
            f"%pip install --upgrade keras-hub {INSTALLED.format('keras-hub')}",
        ),
        ("!pip install -U tensorflow 'keras>=3'", "!pip install -U tensorflow 'keras>=3' is left out"),
        (
            "!pip install git+https://a/b x",
            f"!pip install git+https://a/b x {INSTALLED.format('NAME @ git+https://a/b, x')}",
        ),
        ("%env A=1", "%env A=1 is left out: template.env sets A in each task"),
    ],
)
def test_a_magic_is_left_out_with_a_notice(line: str, notice: str) -> None:
    made = script("x = 1", f"y = 1\nif y:\n    {line}\nz = 3")
    assert made.notices == [f"cell 2, line 3: {notice}"]
    assert variables("x = 1", f"y = 1\nif y:\n    {line}\nz = 3")["z"] == 3


def test_a_command_of_several_lines_is_left_out_whole() -> None:
    made = script("!x \\\n   --a \\\n   --b\nc = 1")
    assert [notice.split(":")[0] for notice in made.notices] == ["cell 1, line 1"]
    assert variables("!x \\\n   --a \\\n   --b\nc = 1")["c"] == 1


@pytest.mark.parametrize(
    "cell",
    [
        "found = '''\n%d items\n! no\n'''",
        "found = (7\n  % 4)",
        "found = 7 \\\n  % 4",
        "found = 7 %4",
        "found = '!' != '?'",
        "found = [\n  '''\n!\n''',\n  3 % 2,\n]",
        "def f():\n  '''\n  %d\n  '''\nfound = f.__doc__",
    ],
)
def test_python_that_looks_like_a_magic_stays(cell: str) -> None:
    plain: dict[str, Any] = {}
    exec(cell, plain)
    assert script(cell).notices == []
    assert variables(cell)["found"] == plain["found"]


def test_code_that_a_magic_times_is_run() -> None:
    assert variables("%time found = [1,\n 2]", "%%time\nfound.append(3)", "%%capture out\nfound.append(4)")[
        "found"
    ] == [1, 2, 3, 4]


def test_a_whole_cell_of_another_language_is_left_out() -> None:
    made = script("a = 1", "%%bash -e\nls -l\nexit 1")
    assert made.notices == ["cell 2: %%bash is left out, with its cell"]


def test_a_file_that_a_cell_writes_travels() -> None:
    made = script("%%writefile util.py\ndef f():\n    return 1\n", "%%writefile -a ./util.py\nX = 2")
    assert (made.files, made.notices) == ({"util.py": "def f():\n    return 1\nX = 2\n"}, [])
    outside = script("%%writefile ../util.py\nX = 2", "%%writefile /etc/x\n", "%%writefile\n")
    assert outside.files == {}
    assert len(outside.notices) == 3
    assert outside.notices[0] == "cell 1: %%writefile ../util.py is left out: only a file beside it travels"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not a notebook: "),
        (b"[1]", "not a notebook of format 4"),
        (json.dumps({"nbformat": 3, "worksheets": []}).encode(), "not a notebook of format 4"),
        (book("x <- 1", kernelspec={"language": "R"}), "a notebook of R"),
        (book("a = 1", "b = 2\nc = ("), "cell 2, line 2: not valid Python: '(' was never closed"),
        (book("a = 1", "b = 2\n\nc = 1 +* 2"), "cell 2, line 3: not valid Python: "),
    ],
)
def test_what_is_no_script_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(NotebookError) as raised:
        notebook_to_script.script(content, "train.ipynb")
    assert message in str(raised.value)


def test_a_line_of_the_script_is_that_of_its_cell(tmp_path: Any) -> None:
    made = script("%matplotlib inline\nfrom __future__ import annotations\na = 1", "b = 1\n\nraise KeyError")
    path = tmp_path / "train.ipynb.py"
    path.write_text(made.text)
    line = next(n for n, text in enumerate(made.text.splitlines(), 1) if text.startswith("raise"))
    assert located(str(path), line, "train.ipynb.py") == ("train.ipynb, cell 2", 3)
    assert located(str(path), 1, "train.ipynb.py") == ("train.ipynb.py", 1)
    assert located("train.py", 12, "train.py") == ("train.py", 12)
