"""Releases on an API server without nodes: the launcher's pod is a process of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tests.api.plain_requests import Api
from tests.api.users import kubeconfig
from tests.chart.helm import CHART, ROOT, Done, Helm, Object, command, one, unpack

RELEASE: Final = "mnist"
FULLNAME: Final = "mnist-tf-launcher"
SECONDS: Final = 90
HELM_SECONDS: Final = 300
"""Limit of helm; with --wait it includes a training."""


class Launcher:
    """The launcher's pod: its command, with its service account's rights."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def end(self) -> Done:
        """Waits for its end."""
        out, error = self._process.communicate(timeout=SECONDS)
        return Done(self._process.returncode, out, error)

    def stop(self) -> Done:
        """Stops it as the kubelet does when the pod is deleted."""
        self._process.terminate()
        return self.end()


class Release:
    """One release in one namespace."""

    def __init__(self, api: Api, helm: Helm, namespace: str, directory: Path) -> None:
        self.api = api
        self.namespace = namespace
        self._helm = helm
        self._directory = directory
        self._launchers: list[subprocess.Popen[str]] = []

    def helm(self, verb: str, *arguments: str | Path) -> Done:
        """`install` and `upgrade` need the chart, the others only the release."""
        chart = [CHART] if verb in ("install", "upgrade") else []
        where = ("--namespace", self.namespace)
        return self._helm.run(verb, RELEASE, *chart, *arguments, *where, seconds=HELM_SECONDS)

    def done(self, verb: str, *arguments: str | Path) -> str:
        """Does the same, and fails the test if the command fails."""
        done = self.helm(verb, *arguments)
        assert done.code == 0, done.error
        return done.out

    def objects(self) -> list[Object]:
        """Returns the objects of the current release."""
        done = self._helm.run("get", "manifest", RELEASE, "--namespace", self.namespace)
        assert done.code == 0, done.error
        return [item for item in yaml.load_all(done.out, yaml.CSafeLoader) if item]

    def launch(self) -> Launcher:
        """Starts the command of the launcher Job's pod."""
        objects = self.objects()
        folder = self._directory / f"pod-{len(self._launchers)}"
        folder.mkdir()
        path = unpack(objects, folder)
        words = [str(path) if word.endswith("cluster.json") else word for word in command(objects)]
        account = one(objects, "Job")["spec"]["template"]["spec"]["serviceAccountName"]
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *words],
            cwd=folder,
            env={**os.environ, "KUBECONFIG": str(self._token(account, folder)), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._launchers.append(process)
        return Launcher(process)

    def close(self) -> None:
        """Ends all processes, also after a failed test."""
        for process in self._launchers:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def job(self, name: str) -> Any:
        """Returns the Job; None where there is none."""
        jobs = self.api.list("Job", self.namespace)
        return next((job for job in jobs if job["metadata"]["name"] == name), None)

    def left(self, *selectors: str) -> list[str]:
        """Returns what is in the namespace with one of the labels."""
        kinds = {
            "api/v1": (
                "configmaps",
                "persistentvolumeclaims",
                "pods",
                "secrets",
                "serviceaccounts",
                "services",
            ),
            "apis/batch/v1": ("jobs",),
            "apis/networking.k8s.io/v1": ("networkpolicies",),
            "apis/rbac.authorization.k8s.io/v1": ("roles", "rolebindings"),
        }
        names = []
        for group, plurals in kinds.items():
            for plural in plurals:
                for selector in selectors:
                    path = f"{group}/namespaces/{self.namespace}/{plural}"
                    items = self.api.request("GET", path, labelSelector=selector).body["items"]
                    names += [f"{plural}/{item['metadata']['name']}" for item in items]
        return sorted(set(names))

    def _token(self, account: str, folder: Path) -> Path:
        path = f"api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        answer = self.api.request("POST", path, {"spec": {"expirationSeconds": 3600}})
        assert answer.status == 201, answer.body
        return kubeconfig(self.api, folder, token=answer.body["status"]["token"], namespace=self.namespace)
