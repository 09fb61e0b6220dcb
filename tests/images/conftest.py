"""Tests of the built images, `make images`. Skipped, with the reason, where Docker or an image is missing."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from typing import Any

import pytest

SECONDS = 200
# As a pod of the launcher is confined: an image must not need more.
CONFINED = [
    "--network=none",
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--user=65532:65532",
]


class Image:
    """A built image."""

    def __init__(self, name: str, inspected: dict[str, Any]) -> None:
        self.name = name
        self.inspected = inspected

    def run(self, *command: str, options: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs one confined container; `options` are further options of `docker run`."""
        container = f"tf-launcher-test-{uuid.uuid4().hex[:8]}"
        try:
            return docker(
                "run", "--rm", f"--name={container}", *CONFINED, *(options or []), self.name, *command
            )
        except subprocess.TimeoutExpired:
            docker("rm", "--force", container)
            raise

    def python(self, code: str, options: list[str] | None = None) -> str:
        """Returns what the code prints in the image."""
        done = self.run("-c", code, options=["--entrypoint=python", *(options or [])])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one command of Docker's, which may fail."""
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
    )


def image(name: str, made_by: str = "make images") -> Image:
    """Returns the image. Skips the test where it does not exist."""
    try:
        inspected = docker("image", "inspect", name)
    except FileNotFoundError:
        pytest.skip("no docker on the PATH")
    if inspected.returncode:
        pytest.skip(f"{name}: {inspected.stderr.strip().splitlines()[-1]} (`{made_by}` builds it)")
    return Image(name, json.loads(inspected.stdout)[0])


@pytest.fixture(scope="session")
def worker() -> Image:
    """The worker image, or the one that LAUNCHER_TEST_IMAGE names."""
    return image(os.environ.get("LAUNCHER_TEST_IMAGE", "tf-launcher-worker:dev"))


@pytest.fixture(scope="session")
def plain() -> Image:
    """An image with TensorFlow and tf_keras and nothing of the launcher's (`make plain-image`), or that of
    LAUNCHER_TEST_PLAIN_IMAGE.
    """
    return image(os.environ.get("LAUNCHER_TEST_PLAIN_IMAGE", "tf-launcher-plain:dev"), "make plain-image")


@pytest.fixture(scope="session")
def launcher() -> Image:
    """The launcher image, or the one that LAUNCHER_TEST_LAUNCHER_IMAGE names."""
    return image(os.environ.get("LAUNCHER_TEST_LAUNCHER_IMAGE", "tf-launcher:dev"))
