"""A cluster made by kind (https://kind.sigs.k8s.io), for the time of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "tf-launcher-test"
SECONDS: Final = 600
"""For any one step: the node's image is pulled, and ours holds a gigabyte."""


@contextmanager
def kind_cluster(kubeconfig: Path, images: Sequence[str]) -> Iterator[Path]:
    """Makes a cluster, loads the images into it, and removes it at the end. KIND_NODE_IMAGE chooses its
    Kubernetes version. Raises CalledProcessError when kind fails, which says why.
    """
    node = os.environ.get("KIND_NODE_IMAGE")
    chosen = ["--image", node] if node else []
    try:
        _kind("create", "cluster", "--kubeconfig", str(kubeconfig), "--wait", "180s", *chosen)
        _kind("load", "docker-image", *images)
        yield kubeconfig
    finally:
        _kind("delete", "cluster", "--kubeconfig", str(kubeconfig))


def _kind(*arguments: str) -> None:
    subprocess.run(["kind", *arguments, "--name", NAME], check=True, timeout=SECONDS)
