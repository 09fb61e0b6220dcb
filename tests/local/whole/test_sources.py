"""Programs that no single ConfigMap can hold, in runs on this machine."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import threading
import zipfile
from typing import Any

import pytest

from tests.local.command_line import CommandLine
from tests.local.machine import linux_only

pytestmark = linux_only

SCRIPT = """
import hashlib, os, pathlib, sys
import other
print("sees", hashlib.sha256(pathlib.Path("data.bin").read_bytes()).hexdigest(), other.X, sys.argv[1:])
"""


@pytest.fixture
def spec() -> dict[str, Any]:
    return {"strategy": "OneDevice", "image": "example.com/any", "args": ["--", "train.py", "--x", "$(HOME)"]}


def submitted(command: CommandLine, spec: dict[str, Any], *options: str) -> list[str]:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "large"},
        "spec": spec,
    }
    (command.directory / "cluster.yaml").write_text(json.dumps(document))
    ran = command("submit", "cluster.yaml", "--backend", "local", *options)
    assert ran.code == 0, ran.out + ran.err
    return command.good("logs", "large", "--raw").splitlines()


def test_a_folder_of_several_config_maps(command: CommandLine, spec: dict[str, Any]) -> None:
    folder = command.directory / "code"
    folder.mkdir()
    content = os.urandom(3_000_000)
    (folder / "data.bin").write_bytes(content)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "other.py").write_text("X = 'mine'\n")
    lines = submitted(command, {**spec, "program": {"source": "code"}})
    expected = hashlib.sha256(content).hexdigest()
    assert f"sees {expected} mine ['--x', '$(HOME)']" in lines


def test_an_archive_that_the_tasks_download(command: CommandLine, spec: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in {"train.py": SCRIPT, "other.py": "X = 2", "data.bin": "x"}.items():
            archive.writestr(f"code/{name}", text)
    content = buffer.getvalue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        source = {
            "url": f"http://127.0.0.1:{server.server_port}/code.zip",
            "sha256": hashlib.sha256(content).hexdigest(),
            "path": "code",
        }
        given = {**spec, "program": {"source": {"archive": source}}}
        lines = submitted(command, given, "--allow-network")
    finally:
        server.shutdown()
        server.server_close()
    assert f"sees {hashlib.sha256(b'x').hexdigest()} 2 ['--x', '$(HOME)']" in lines
