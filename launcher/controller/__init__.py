"""The successor of Kubeflow's training-operator for TFJobs: one Deployment that has each TFJob of a cluster
trained as a run, and writes back to the TFJob what its clients wait for.
"""

from typing import Final

LEASE: Final = "tf-launcher-controller"
"""By which the replicas elect the one that leads."""
