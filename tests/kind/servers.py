"""A cluster made by kind (https://kind.sigs.k8s.io) for the time of the tests; what a cluster offers them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

NAME: Final = "tf-launcher-test"
SECONDS: Final = 600
"""Limit of one step: kind pulls the node's image, and the worker image has a gigabyte."""

_LAST_LINES: Final = 8
_LINE_LENGTH: Final = 300
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


class ClusterError(Exception):
    """The tests have no cluster; says why, and what to do."""


@contextmanager
def kind_cluster(kubeconfig: Path, images: Sequence[str]) -> Iterator[Path]:
    """Makes a cluster, loads the images into it, and removes it at the end. KIND_NODE_IMAGE chooses its
    Kubernetes version, KIND_CONFIG is a file of kind's own configuration.

    Raises ClusterError with kind's last lines. A cluster of that name that is there already is left alone.
    """
    options = []
    if node := os.environ.get("KIND_NODE_IMAGE"):
        options += ["--image", node]
    if config := os.environ.get("KIND_CONFIG"):
        if not Path(config).is_file():
            raise ClusterError(
                f"KIND_CONFIG={config}: there is no such file. Name a configuration of kind's."
            )
        options += ["--config", config]
    # kind removes by itself what it could not finish.
    _kind("create", "cluster", "--kubeconfig", str(kubeconfig), "--wait", "180s", *options)
    try:
        _kind("load", "docker-image", *images)
        yield kubeconfig
    finally:
        _kind("delete", "cluster", "--kubeconfig", str(kubeconfig))


def _kind(*arguments: str) -> None:
    command = ["kind", *arguments, "--name", NAME]
    words = " ".join(command)
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        advice = "install it (https://kind.sigs.k8s.io), or name a cluster in LAUNCHER_TEST_KUBECONFIG"
        raise ClusterError(f"there is no kind on the path: {advice}") from error
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")  # bytes, although it was to be text
        raise ClusterError(f"`{words}` did not end in {SECONDS} s{_last_lines(output)}") from error
    if done.returncode:
        raise ClusterError(f"`{words}` failed with exit code {done.returncode}{_last_lines(done.stdout)}")


def _last_lines(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    short = [line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]} ..." for line in lines]
    return (
        "".join([", and said last:", *(f"\n    {line}" for line in short)]) if short else ", and said nothing"
    )


def claim_class(classes: Sequence[dict[str, Any]]) -> str:
    """The StorageClass that a claim must name here: "" where the cluster has a default one. `classes` are the
    cluster's. LAUNCHER_TEST_STORAGE_CLASS chooses one. Raises ClusterError if there is none to take.
    """
    names = sorted(item["metadata"]["name"] for item in classes)
    if chosen := os.environ.get("LAUNCHER_TEST_STORAGE_CLASS"):
        if chosen not in names:
            there = ", ".join(names) or "none"
            raise ClusterError(f"LAUNCHER_TEST_STORAGE_CLASS={chosen}: the cluster has {there}")
        return chosen
    if any((item["metadata"].get("annotations") or {}).get(_DEFAULT) == "true" for item in classes):
        return ""
    if not names:
        raise ClusterError("the cluster has no StorageClass, and so no claim gets a volume: install one")
    return str(names[0])
