"""What a task is started with: environment variables, the place of its runtime, its port."""

from __future__ import annotations

from typing import Final

ARCHIVE: Final = "/opt/tf-launcher/runtime/worker.zip"
"""The path at which a pod has the runtime that travels with a run. `python3 ARCHIVE` is `python
-m worker`.
"""
MODULES: Final = "modules.zip"
"""The file in the archive that has the runtime's modules."""

PORT: Final = 2222
"""Every task's gRPC port. 2222 is customary for TensorFlow."""

GRPC_FAIL_FAST: Final = ("GRPC_FAIL_FAST", "use_caller")
"""A variable of TensorFlow's servers and clients, and its value: the loss of a task is an error at once, and
a task that is not up yet is waited for. With `false` a chief hangs on a lost ps, with `true` it fails too
early.
"""

HUGE_PAGES: Final = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
"""A variable of the C library's (2.35 and newer), and its value: large blocks of memory lie in huge pages
where the node gives them on request. A step that makes a new gradient of each large variable spends half of
its time on pages of 4 KiB:
https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
"""

BUCKET_SCHEME: Final = "s3"
"""The scheme of URLs that TensorFlow cannot open, and the runtime can."""

BUCKET_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The keys of the Secret that `storage.secretName` names, and the variables that tasks get them in. The last
one may be missing.
"""


GIT_KEYS: Final = ("GIT_USERNAME", "GIT_PASSWORD")
"""The variables in which a task that fetches a git repository has the user and the password, of the keys
`username` and `password` of a Secret.
"""


class Env:
    """Names of environment variables. The launcher reserves all but TF_CONFIG."""

    TF_CONFIG: Final = "TF_CONFIG"
    """TensorFlow's variable: `{"cluster": {role: [address]}, "task": {"type": role, "index": int}}`."""
    TASK_INDEX: Final = "TASK_INDEX"
    """The pod's completion index; TF_CONFIG refers to it as `$(TASK_INDEX)`."""
    ROLE: Final = "TF_LAUNCHER_ROLE"
    """chief, worker, extra-worker, ps, evaluator, dispatcher or data-worker; it is set also where a task has
    no TF_CONFIG.
    """
    CONFIG: Final = "TF_LAUNCHER_CONFIG"
    """The path of the `RunConfig` document (JSON)."""
    CLUSTER_FILE: Final = "TF_LAUNCHER_CLUSTER_FILE"
    """The path of the cluster spec (JSON: the value of TF_CONFIG's "cluster"). It replaces TF_CONFIG where
    that would be too long for an environment string; ROLE and TASK_INDEX then name the task.
    """
    TASK_DIR: Final = "TF_LAUNCHER_TASK_DIR"
    """This task's private, writable directory; see `task_file`."""
    COPIES_DIR: Final = "TF_LAUNCHER_COPIES_DIR"
    """A directory in memory of this task's own, for copies of the training; unset where none are kept. It
    outlives the training process, and not the pod.
    """
    SOURCE: Final = "TF_LAUNCHER_SOURCE"
    """The directory of the program's source, which is put on the module path; unset without a source."""
    SOURCE_PARTS: Final = "TF_LAUNCHER_SOURCE_PARTS"
    """The files that the archive with the program's source is divided into, joined by `:`; unset where the
    source is mounted.
    """
    PACKAGES: Final = "TF_LAUNCHER_PACKAGES"
    """The directory for the packages that the program asks for; unset in a task that installs none."""
    ELASTIC_WORKERS: Final = "TF_LAUNCHER_ELASTIC_WORKERS"
    """How many workers an elastic run may have, as JSON; unset in all other runs. See `ElasticWorkers`."""

    METRICS: Final = "TF_LAUNCHER_METRICS"
    """Where the supervisor serves metrics: `host:port`, of which the port counts; or `fd:N`, a socket that
    listens already. Unset where nobody asks for them.
    """

    LOCAL: Final = "TF_LAUNCHER_LOCAL"
    """Set only where tasks are processes of this machine, where requests for resources have no effect. The
    value marks the run's processes for the launcher.
    """

    RESERVED: Final = frozenset(
        {
            TF_CONFIG,
            TASK_INDEX,
            ROLE,
            CONFIG,
            CLUSTER_FILE,
            TASK_DIR,
            COPIES_DIR,
            SOURCE,
            SOURCE_PARTS,
            PACKAGES,
            ELASTIC_WORKERS,
            METRICS,
        }
    )
