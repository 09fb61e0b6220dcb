"""`controller` trains the TFJobs of a cluster, as Kubeflow's training-operator did."""

from __future__ import annotations

import importlib.util
import logging
import os
from argparse import Namespace
from pathlib import Path
from typing import NoReturn

from launcher.cli import arguments as shared
from launcher.cli.prerequisites import MissingPackagesError
from launcher.cli.strict_parser import StrictParser
from launcher.cli.usage import wrong_usage

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="train the TFJobs of this namespace; may be given several times (default: of all namespaces)",
    )
    parser.add_argument(
        "--lease-namespace",
        metavar="NAMESPACE",
        help="where the lease is that one controller of several has (default: the pod's own)",
    )
    parser.add_argument(
        "--address",
        default="0.0.0.0:8080",
        metavar="HOST:PORT",
        help="where /metrics, /healthz and /readyz are served (default: %(default)s)",
    )
    shared.context(parser)


def run(options: Namespace) -> NoReturn:
    """Runs until SIGTERM."""
    host, _, port = options.address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise wrong_usage("--address", f"expected HOST:PORT, as in 127.0.0.1:8080, not {options.address}")
    missing = [name for name in ("kopf", "prometheus_client") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackagesError(
            f"the controller needs {' and '.join(missing)}, which this Python lacks",
            "Install the extra: python -m pip install 'tf-launcher[controller]'",
        )
    from launcher.controller.leader import Leader, Options

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("kopf", "leaderelection"):
        logging.getLogger(name).setLevel(logging.WARNING)
    lease = options.lease_namespace or _own_namespace()
    Leader(Options(options.namespace, lease, (host, int(port)), options.context)).run()


def _own_namespace() -> str:
    if _OWN_NAMESPACE.exists():
        return _OWN_NAMESPACE.read_text().strip()
    return os.environ.get("POD_NAMESPACE", "default")
