"""Converts Kubeflow's TFJob to the same run as a TrainingCluster.

    TFJob (a Document) -> fields -> conversion (with templates) -> TrainingCluster (a Document)
                          (names     (what it means here,
                          and types)  and where that differs)

metadata: the run's name; holders: objects that contain a TFJob.

Source of what a TFJob means: https://github.com/kubeflow/training-operator, release 1.9,
`pkg/apis/kubeflow.org/v1` (fields and defaults), `pkg/webhooks/tensorflow` (what is refused) and
`pkg/controller.v1/tensorflow` (TF_CONFIG, success and failure).
"""

from __future__ import annotations

from launcher.tfjob.conversion import Conversion, convert, is_kubeflow
from launcher.tfjob.remarks import HEADER

__all__ = ["HEADER", "Conversion", "convert", "is_kubeflow"]
