"""The output of `status`, `list` and `describe` for runs on this machine, for people and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

import launcher
from tests.local.command_line import ENDS, FOR_EVER, CommandLine
from tests.local.machine import TIMEOUT, eventually, python

PROGRESS = {
    "tf-launcher": 1,
    "event": "progress",
    "task": "busy-chief-0",
    "time": 1000.0,
    "epoch": 2,
    "epochs": 3,
    "step": 50,
    "steps": 94,
    "steps_per_second": 21.5,
    "loss": 0.5,
    "metrics": {"accuracy": 0.75},
    "epoch_end": False,
}
REPORTS = python(f"import time; print({json.dumps(PROGRESS)!r}, flush=True); time.sleep(600)")


def one(command: CommandLine, *arguments: str) -> dict[str, Any]:
    """Returns the document, after validation against its schema."""
    document: dict[str, Any] = json.loads(command.good(*arguments, "-o", "json"))
    schema = json.loads(command.good("schema", arguments[0]))
    jsonschema.validate(document, schema, format_checker=jsonschema.FormatChecker())
    return document


def test_a_run_that_is_running(command: CommandLine) -> None:
    labels = {"labels": {"team": "vision"}}
    command.start("busy", labels, chief={"command": REPORTS}, worker={"replicas": 2, "command": FOR_EVER})
    command.until(lambda ran: "epoch 2/3" in ran.out, "list")
    document = one(command, "status", "busy")
    assert (document["apiVersion"], document["kind"]) == ("launcher/v1alpha1", "Run")
    assert (document["backend"], document["context"]) == ("local", None)
    metadata, status = document["metadata"], document["status"]
    assert (metadata["name"], metadata["namespace"]) == ("busy", "default")
    assert metadata["labels"]["team"] == "vision"
    assert (status["phase"], status["ended"], status["completionTime"]) == ("Running", False, None)
    assert [(role["role"], role["replicas"]) for role in status["roles"]] == [("chief", 1), ("worker", 2)]
    assert [task["name"] for task in status["tasks"]] == ["busy-chief-0", "busy-worker-0", "busy-worker-1"]
    assert all(task["pod"].startswith(f"{task['name']}-") for task in status["tasks"])
    assert status["progress"] == {
        "epoch": 2,
        "epochs": 3,
        "step": 50,
        "steps": 94,
        "stepsPerSecond": 21.5,
        "loss": 0.5,
        "metrics": {"accuracy": 0.75},
        "learningRate": None,
        "time": "1970-01-01T00:16:40Z",
    }
    again = yaml.safe_load(command.good("status", "busy", "-o", "yaml"))
    assert again.keys() == document.keys()
    assert again["status"]["progress"] == status["progress"]
    assert command.good("status", "busy", "-o", "name") == "busy\n"
    wide = command.good("status", "busy", "-o", "wide")
    for text in ("run busy is running", "POD", *(task["pod"] for task in status["tasks"])):
        assert text in wide


def test_a_run_that_has_ended(command: CommandLine) -> None:
    command.run("done", worker={"command": ENDS})
    command.run("bad", worker={"command": python("raise SystemExit(3)"), "restartPolicy": "Never"})
    status = one(command, "status", "done")["status"]
    assert (status["phase"], status["ended"], status["tasks"][0]["exitCode"]) == ("Succeeded", True, 0)
    assert status["durationSeconds"] >= 0
    status = one(command, "status", "bad")["status"]
    assert (status["phase"], status["tasks"][0]["exitCode"]) == ("Failed", 3)
    assert status["reason"]


def test_lists(command: CommandLine) -> None:
    command.run("old", {"labels": {"team": "speech"}}, worker={"command": ENDS})
    command.start("new", {"labels": {"team": "vision"}, "namespace": "lab"}, worker={"command": FOR_EVER})
    command.until(lambda ran: "Running" in ran.out, "list")
    heading, *rows = command.good("list").splitlines()
    assert heading.split() == ["NAMESPACE", "RUN", "STATE", "PROGRESS", "TASKS", "AGE", "DURATION"]
    assert [row.split()[:3] for row in rows] == [["default", "old", "Succeeded"], ["lab", "new", "Running"]]
    assert command.good("list", "-A", "-o", "name") == command.good("list", "-o", "name") == "old\nnew\n"
    assert command.good("list", "-n", "lab", "-o", "name") == "new\n"
    assert command.good("list", "-l", "team=vision", "-o", "name") == "new\n"
    assert command.good("list", "-l", "team in (speech, vision),!x", "-o", "name") == "old\nnew\n"
    assert command.good("list", "-l", "team=nobody") == "no runs\n"
    assert one(command, "list", "-l", "team=nobody")["items"] == []
    assert [item["metadata"]["name"] for item in one(command, "list")["items"]] == ["old", "new"]
    wide = command.good("list", "-o", "wide").splitlines()
    assert wide[0].split()[-3:] == ["WHERE", "STARTED", "LABELS"]
    assert "this machine" in wide[1]
    assert wide[1].split()[-1] == "team=speech"
    assert [run.name for run in launcher.runs(selector="team=vision")] == ["new"]
    ran = command("list", "-l", "team in")
    assert ran.code == 2
    assert "-l: expected labels, as in team=vision" in ran.err


def test_a_description(command: CommandLine) -> None:
    command.start("busy", {"labels": {"team": "vision"}}, worker={"replicas": 2, "command": FOR_EVER})
    ran = command.until(lambda ran: "worker-1   Running" in ran.out, "describe", "busy")
    for line in (
        "name         busy",
        "where        this machine",
        "labels       team=vision",
        "state        Running",
    ):
        assert line in ran.out.splitlines()
    assert "submitted" in ran.out
    assert "localhost   busy-worker-1-" in ran.out


def test_a_status_is_watched_to_the_end(command: CommandLine, tmp_path: Path) -> None:
    """Another program gets a line for each change, or a document in a line."""
    go = tmp_path / "go"
    waits = python(f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)")
    command.start("demo", worker={"command": waits})
    call = [sys.executable, "-m", "launcher", "status", "demo", "--watch"]
    with (
        subprocess.Popen([*call, "-o", "json"], stdout=subprocess.PIPE, text=True) as documents,
        subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as lines,
    ):
        assert documents.stdout is not None
        assert lines.stdout is not None
        first = json.loads(documents.stdout.readline())
        assert lines.stdout.readline().split()[:2] == ["NAMESPACE", "RUN"]
        while first["status"]["phase"] != "Running":
            first = json.loads(documents.stdout.readline())
        go.touch()
        last = [json.loads(line) for line in documents.stdout][-1]
        assert last["status"]["phase"] == "Succeeded"
        assert "Succeeded" in lines.stdout.read().splitlines()[-1]
        assert (documents.wait(TIMEOUT), lines.wait(TIMEOUT)) == (0, 0)


def test_a_list_is_watched_until_ctrl_c(command: CommandLine, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with (
        seen.open("w") as file,
        subprocess.Popen([sys.executable, "-m", "launcher", "list", "-w"], stdout=file) as watching,
    ):
        eventually(lambda: "NAMESPACE" in seen.read_text(), "the heading")
        command.start("demo", worker={"command": FOR_EVER})
        eventually(lambda: "Running" in seen.read_text(), "the run")
        command.good("delete", "demo")
        eventually(lambda: "Deleted" in seen.read_text(), "its end")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(TIMEOUT) == 130


@pytest.mark.parametrize("shape", ["dead", "nonsense"])
def test_a_cluster_that_does_not_answer_hides_no_run_of_this_machine(
    command: CommandLine, tmp_path: Path, shape: str
) -> None:
    command.run("here", worker={"command": ENDS})
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "far", "context": {"cluster": "c", "user": "u"}}
    document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    text = json.dumps({**document, "current-context": "far"}) if shape == "dead" else "nonsense"
    Path(os.environ["KUBECONFIG"]).write_text(text)
    began = time.monotonic()
    ran = command("list")
    assert ran.code == 5
    assert "here" in ran.out
    assert "WHERE" in ran.out.splitlines()[0]
    assert ran.err.startswith("error: the cluster's runs are not shown: ")
    assert [item["metadata"]["name"] for item in json.loads(command("list", "-o", "json").out)["items"]] == [
        "here"
    ]
    assert command("list", "--backend", "local").code == 0
    assert command("status", "here").code == 0, "what is here needs no cluster"
    assert time.monotonic() - began < TIMEOUT
