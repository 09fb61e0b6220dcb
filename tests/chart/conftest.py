"""Tests of the Helm chart: what it renders, and releases on a real API server.

They need Helm 4 (LAUNCHER_TEST_HELM names it, else it is the path's); those of releases also what tests/api
needs. Where one is missing, they are skipped and say so.
"""

from __future__ import annotations

import pytest

from tests.api.conftest import api, namespace  # noqa: F401 - fixtures
from tests.chart.helm import Helm, find


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return find(tmp_path_factory.mktemp("helm"))
