"""Renders the same cluster by the template of https://github.com/tensorflow/ecosystem, from a
checkout of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TEMPLATE = "kubernetes/template.yaml.jinja"
PRINTER = "render_template.py"
LISTS = (b'"--worker_hosts=', b'"--ps_hosts=')


class Printed(NamedTuple):
    """What the template printed."""

    objects: int
    bytes: int
    listed: int
    """Bytes of the lists of all workers and ps, which every task gets as flags."""


def command(checkout: Path, directory: Path, workers: int, ps: int) -> list[str]:
    """Returns the command of its README: it copies the template to `directory` and sets the variables at its
    top.
    """
    text = (checkout / TEMPLATE).read_text()
    variables = {
        "name": '"fashion-mnist"',
        "image": '"tf-launcher-worker:dev"',
        "worker_replicas": str(workers),
        "ps_replicas": str(ps),
        "script": '"/app/fashion_mnist.py"',
        "data_dir": '"/data"',
        "train_dir": '"/model"',
    }
    copy = directory / f"{workers}.yaml.jinja"
    copy.write_text(_set(text, variables))
    return [sys.executable, str(checkout / PRINTER), str(copy)]


def _set(text: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        before, start, after = text.partition(f"{{%- set {name} = ")
        _, end, after = after.partition(" -%}")
        if not (start and end):
            raise SystemExit(f"--ecosystem: {TEMPLATE} sets no {name} at its top")
        text = before + start + value + end + after
    return text


def read(path: Path) -> Printed:
    """Reads a file with the template's output."""
    objects = listed = 0
    with path.open("rb") as lines:
        for line in lines:
            objects += line.startswith(b"kind: ")
            item = line.strip().removeprefix(b"- ")
            if item.startswith(LISTS):
                listed += len(item) - len(b'""')
    return Printed(objects, path.stat().st_size, listed)
