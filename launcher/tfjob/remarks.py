"""Sentences for `convert` about the differences between a run and the training-operator's run of the same
TFJob.
"""

from __future__ import annotations

from typing import Final

HEADER: Final = """\
A TFJob, as a cluster.yaml. Where it is not as with the training-operator, a comment says so. For all tasks:
- A task's address is <run>-<role>-<index>.<run>, also when its pod is replaced.
- A pod without a securityContext runs as user 65532 without privileges; one that has its own has that
  instead, be it {}. A pod without a service account of its own has no token.
- The operator's labels job-name and replica-type are on the pods, and job-role: master on a chief's, but not
  on worker 0's. A task's index is the label batch.kubernetes.io/job-completion-index.
- Only the run's own pods reach its ports. Sidecars of Istio and Linkerd are added only if asked for.
- A pod that a drained node or a preemption took along is replaced, and counts as no failure.
"""

SPARSE: Final = """\
A worker is told of itself and the parameter servers, as with the operator. A parameter server is told of
itself under its own index, the chief of everyone: what the operator told them TensorFlow does not take.
The number of workers stays what it is: to change it while the run goes on, the strategy must be
ParameterServer or MultiWorkerMirrored with a program, whose worker has minReplicas.
"""

EVALUATOR: Final = """\
In a cluster of its own, and in no other task's TF_CONFIG: listed there, it would have TensorFlow 2's
coordinator wait for ever.
"""

MASTER: Final = "The Master: TF_CONFIG calls it so, its pod and its address are called chief."

POD_RESTART_POLICY: Final = (
    "The pod template's own restartPolicy is left out; the operator wrote over it, too."
)

ALWAYS: Final = """\
Always: a task that ends with 0 has succeeded. The operator had it started again, without an end.
"""

REPLACED: Final = """\
A pod that fails is replaced, where the operator had its container started again in place.
"""

ALL_WORKERS: Final = "successPolicy AllWorkers is left out: beside a chief the operator took no notice of it."

FIRST_WORKER: Final = """\
Worker 0's success is the run's, and ends the other workers. With the operator they ran on, unless
cleanPodPolicy had them deleted.
"""

CLEANED: Final = """\
Seen to by whoever follows the run (submit, wait, logs -f), after 10 s to end by themselves.
"""

LEFT: Final = """\
What still runs when the run has ended is left alone, as with the operator; Running stops it. A run that
fails because of another role stops its chief, or its workers, all the same.
"""

BACKOFF_LIMIT: Final = """\
Tries that the tasks of a role have together. The operator counted all roles', and with ExitCode none.
"""

GANG: Final = "Which scheduler, the operator's own flag said. Here it is the pods' schedulerName."

GENERATED: Final = "The run is called {}, made of generateName as an API server does: another name each time."

DROPPED: Final = "Left out, as an API server's, a controller's or kubectl's own: {}."

BETA: Final = """\
v1beta2 is read as v1. What changed: without a cleanPodPolicy, v1beta2 stopped what still ran when the job had
ended (Running), and v1 leaves it alone (None).
"""

OLD_POLICY: Final = """\
Beside tfReplicaSpecs, where the first operators had it: {}. Read as if it stood in runPolicy; later
operators take no notice of it there.
"""

PASSED_OVER: Final = "Passed over, because runPolicy says otherwise: {}."
