"""A notebook's output, from a real Jupyter kernel."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.local.machine import linux_only
from tests.paths import ROOT

SECONDS = 120
PROGRAM = """\
from worker.contract.records import Progress, Training, emit
emit("noted-chief-0", Training(2, 3, 0))
emit("noted-chief-0", Progress(2, 2, 3, 3, 9.5, 0.5, {"accuracy": 0.75}, True))
print("<b>own</b> line")
"""
CELLS = (
    "import launcher",
    f"""run = launcher.submit({{
    "apiVersion": "launcher/v1alpha1",
    "kind": "TrainingCluster",
    "metadata": {{"name": "noted"}},
    "spec": {{
        "strategy": "OneDevice",
        "image": "example.com/any",
        "chief": {{"command": ["python", "-c", {PROGRAM!r}]}},
    }},
}}, backend="local")
run.wait({SECONDS})""",
    "for line in run.logs():\n    print(line)",
    "run",
    "run.delete(); run",
    "import os\nfrom json import dumps as written",
    "RATE = 0.5",
    """def told(text):
    print("told", text)
    os.environ["TOLD"] = text""",
    f"""def train(name):
    told(written({{"name": name, "rate": RATE}}))
second = launcher.submit(
    train,
    name="celled",
    strategy="OneDevice",
    image="example.com/any",
    parameters={{"name": "x"}},
    backend="local",
)
assert second.wait({SECONDS}).phase.name == "SUCCEEDED", list(second.logs())
print(*(line.text for line in second.logs() if line.text.startswith("told")))
second.delete()""",
)

pytestmark = linux_only


def shown(cell: Any, kind: str) -> str:
    """Returns a cell's value, or what it printed."""
    if kind == "stream":
        return "".join(output.text for output in cell.outputs if output.output_type == "stream")
    (output,) = (output for output in cell.outputs if output.output_type == "execute_result")
    return str(output.data[kind])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    NotebookClient(
        book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    _, waited, logged, report, gone, *_, trained = book.cells

    table = shown(waited, "text/html")
    assert "<caption>run noted: Succeeded" in table
    cells = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    assert cells[0] == ["role", "ready", "succeeded", "failed", "restarts", "state"]
    assert cells[1][:5] == ["chief", "0", "1/1", "0", "0"]

    assert shown(logged, "stream").splitlines() == [
        "chief-0 | trains 2 epochs of 3 steps",
        "chief-0 | epoch 2/2, step 3/3: accuracy 0.7500, loss 0.5000, 9.50 steps/s",
        "chief-0 | <b>own</b> line",
    ]

    frame = shown(report, "text/html")
    match = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="" title="run noted" style="[^"]*"></iframe>', frame
    )
    assert match is not None, "one element, whose attributes nothing in the page ends"
    assert unescape(match[1]).startswith("<!doctype html>")
    assert "Succeeded" in unescape(match[1])
    assert shown(gone, "text/plain") == "Run('noted', namespace='default')"
    assert all(output.get("data", {}).get("text/html") is None for output in gone.outputs)
    assert shown(trained, "stream") == 'told {"name": "x", "rate": 0.5}\n'
