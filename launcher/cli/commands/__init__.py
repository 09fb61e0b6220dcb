"""The commands. `cmd_submit` has what `submit` takes and does, and so on. It is imported when the command is
used, and imports what it needs when it runs, so that `--help` imports nothing.
"""

from __future__ import annotations

from typing import Final

from launcher import __version__
from launcher.object_names import COMMAND

VERSION: Final = f"{COMMAND} {__version__}"

COMMANDS: Final = {
    "init": "write a commented cluster.yaml and its program to start from",
    "validate": "check a file",
    "verify": "train some steps here, in one process and by the strategy, and compare the two",
    "convert": "print a TFJob as a cluster.yaml, and where it differs",
    "render": "print the Kubernetes objects of a file's runs",
    "submit": "start a file's runs and follow them to the end",
    "run": "train a Keras script or a notebook as it is, without a file",
    "status": "show a run",
    "list": "show all runs, of this machine and of the cluster",
    "describe": "show all that is known of a run, with its latest events",
    "logs": "show what a run's tasks print",
    "events": "show the Kubernetes events of a run, oldest first",
    "report": "write an HTML report of a run, for a browser",
    "ui": "show all runs in a browser, on a local port, until Ctrl-C",
    "wait": "wait for a run to end; the exit code is the run's",
    "cp": "copy a run's files to this machine: its checkpoints, its exported model",
    "tensorboard": "open a run's TensorBoard on a local port, until Ctrl-C",
    "stacks": "show the Python stacks of a run's training processes, which go on",
    "profile": "profile the next steps of a run in all its tasks, for TensorBoard",
    "kill": "end a task by SIGKILL, to see its run survive that (this machine)",
    "scale": "change the number of an elastic run's workers, or of data workers, while it runs",
    "suspend": "stop a run's tasks for now",
    "resume": "continue a suspended run from its last backup",
    "delete": "end runs and remove what is left of them",
    "doctor": "check whether the cluster can carry out a run (Kubernetes)",
    "controller": "train the TFJobs of a cluster, as Kubeflow's training-operator did (Kubernetes)",
    "schema": "print a JSON Schema",
    "completion": "print a script that completes commands and runs' names",
    "help": "show the help of a command",
    "version": "print the version",
}
"""Each command's description, in the order of `--help`."""

BARE: Final = ("help", "version")
"""Commands that need no packages."""
