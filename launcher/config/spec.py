"""What the user wants: the file, as frozen pydantic models. No check here needs more than one field;
those that do are in `launcher.validation.rules`.

Field names are Kubernetes' own wherever it has one. Durations are in seconds and say so in their names.
"""

# Annotations are evaluated as they stand: pydantic would have to evaluate each from its text, which takes
# a fifth of this module's import.

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic.alias_generators import to_camel

from launcher.config.value_types import (
    CheckpointName,
    Count,
    DnsLabel,
    EnvName,
    Items,
    LabelKey,
    LabelValue,
    MountPath,
    Named,
    ObjectName,
    Quantity,
    RunName,
    Seconds,
    Text,
)

API_VERSION = "launcher/v1alpha1"

Strategy = Literal[
    "OneDevice", "Mirrored", "MultiWorkerMirrored", "ParameterServer", "CentralStorage", "TPU", "Custom"
]
RoleName = Literal["chief", "worker", "ps", "evaluator"]
Mode = Literal["Train", "Evaluate", "Predict"]
Gang = Literal["Kueue", "Volcano", "Coscheduling"]


class _Model(BaseModel):
    # A default that is a model is made by a factory, and by `model_construct`: else a validator of its own
    # would be built for what needs no checking.
    model_config = ConfigDict(
        alias_generator=to_camel,
        # In Python either way; a file's names are the aliases alone, see `loading`.
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
        defer_build=True,
        serialize_by_alias=True,
    )


class Metadata(_Model):
    """Who the run is."""

    name: RunName
    """The run. Every object's name begins with it."""
    namespace: DnsLabel = "default"
    """Where the run lives."""
    labels: dict[LabelKey, LabelValue] = {}
    """Added to every object and every pod."""
    annotations: dict[LabelKey, Text] = {}
    """Added to every object and every pod."""


class EnvVar(_Model):
    """An environment variable, by value or from elsewhere."""

    name: EnvName
    value: Text | None = None
    """Taken as it stands: `$(NAME)` is not replaced, unlike in a pod's own manifest."""
    value_from: dict[str, Any] | None = None
    """Kubernetes' EnvVarSource: secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef."""


class VolumeMount(_Model):
    """Where a volume is seen."""

    name: DnsLabel
    mount_path: MountPath
    read_only: bool | None = None
    sub_path: Text | None = None
    sub_path_expr: Text | None = None
    mount_propagation: Literal["None", "HostToContainer", "Bidirectional"] | None = None
    recursive_read_only: Literal["Disabled", "IfPossible", "Enabled"] | None = None


class Requirements(_Model):
    """Kubernetes' own form of resources, for a request that differs from its limit."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


def _form(value: object) -> str:
    if isinstance(value, Requirements) or (isinstance(value, dict) and value.keys() & {"requests", "limits"}):
        return FULL_FORM
    return FLAT_FORM


FLAT_FORM = "(flat)"
FULL_FORM = "(full)"
Resources = Annotated[
    Annotated[dict[str, Quantity], Tag(FLAT_FORM)] | Annotated[Requirements, Tag(FULL_FORM)],
    Discriminator(_form),
]


class JobMetadata(_Model):
    """Of a Job, for what acts on Jobs and not on pods."""

    labels: dict[LabelKey, LabelValue] = {}
    annotations: dict[LabelKey, Text] = {}


class RoleTemplate(_Model):
    """What every role takes. A role's own fields win over `spec.template`, maps and lists of named
    entries one by one.
    """

    image: Text | None = None
    """The role's own image, in place of `spec.image`."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: Named = ()
    command: Items[Text] | None = None
    """The container's command, in place of the worker runtime's."""
    args: Items[Text] | None = None
    """The command's arguments, taken as they stand."""
    working_dir: MountPath | None = None
    env: Items[EnvVar] = ()
    env_from: Items[dict[str, Any]] = ()
    """Kubernetes' EnvFromSource: whole ConfigMaps or Secrets as environment."""
    resources: Resources = {}
    """Either `{cpu: 1, memory: 2Gi, nvidia.com/gpu: 1}`: each is requested, and all but cpu is the limit
    too (a limit on cpu throttles TensorFlow's thread pools); or Kubernetes' own requests and limits.
    GPUs come with 1Gi of shared memory at /dev/shm, unless a volume is mounted there."""
    allow_cpu: bool | None = None
    """Whether a task of the worker runtime that asks for GPUs, and whose TensorFlow sees none, continues with
    the CPU. Left out, or false: it fails, and says what to do."""
    volumes: Named = ()
    """Kubernetes' volumes."""
    volume_mounts: Items[VolumeMount] = ()
    node_selector: dict[LabelKey, LabelValue] = {}
    tolerations: Items[dict[str, Any]] = ()
    affinity: dict[str, Any] = {}
    """Kubernetes' affinity."""
    service_account_name: ObjectName | None = None
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Custom: where the tasks listen, as TF_CONFIG says. Left out: 2222."""
    restart_policy: Literal["OnFailure", "Never", "ExitCode"] | None = None
    """Custom: which failed tasks are retried. OnFailure: all; Never: none; ExitCode: those that
    ended with 128 to 255, and 1 to 127 fails the run at once. Left out: OnFailure."""
    job_metadata: JobMetadata = Field(default_factory=JobMetadata.model_construct)
    """Added to the role's Job, and in a JobSet to its replicatedJob."""
    pod_template: dict[str, Any] = {}
    """A partial PodTemplateSpec, merged last, for all else: a strategic merge patch, with null, `$patch` and
    `$retainKeys`. The container is called tensorflow."""


class Role(RoleTemplate):
    """One kind of task."""

    replicas: Count = 1
    """How many tasks there are of it."""


class Program(_Model):
    """A training program: plain Python with a model and a dataset."""

    source: Text | None = None
    """A .py file or a folder beside this file; it travels in a ConfigMap. Without it, the entrypoint
    is a module of the image."""
    entrypoint: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")] | None = None
    """`module:object`, such as `mnist:Mnist`. Left out where a `command` runs the source itself."""
    keras: Literal[2, 3] | None = None
    """What tf.keras is in the program: 2 is tf_keras, 3 is Keras 3. The default is 2 where the image has
    tf_keras, as the launcher's own has, else 3. A program that imports `keras` trains with Keras 3 in any
    case: the runtime sees which of the two its model is of."""
    parameters: dict[str, Any] = {}
    """Passed to the program as they are. The runtime itself reads epochs, stepsPerEpoch, globalBatchSize or
    batchSizePerReplica, stepsPerExecution, checkpointEpochs and iteration. A name that is like one of these
    is refused, unless the program's source has it as a string, as in `parameters["steps"]`."""


class RunPolicy(_Model):
    """When a task is retried, and when the run ends."""

    backoff_limit: Count | None = 3
    """Retries of each task, under Custom of all tasks of a role together; null sets no limit."""
    active_deadline_seconds: Seconds | None = None
    """The run fails when it has lasted longer."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = 3600
    """A finished run is deleted after so long; null keeps it."""
    clean_policy: Literal["Running", "All", "None"] = "Running"
    """What is removed when the run ends. Running stops the tasks that still run. All also deletes the
    finished pods, with their logs. None removes nothing. On Kubernetes the command that follows the run does
    it; where no command follows, everything stays until ttlSecondsAfterFinished is over."""
    suspend: bool = False
    """Make the run, and start it later."""
    starting_deadline_seconds: Seconds = 900
    """How long the chief waits for its peers to answer."""
    stall_seconds: Annotated[int, Field(ge=5, le=2**31 - 1)] = 600
    """With no progress for so long the chief is restarted. Longer than the longest step and than the
    first step's tracing."""
    chief_lost_seconds: Annotated[int, Field(ge=5, le=2**31 - 1)] = 900
    """A task that cannot reach its chief for so long leaves."""


class Storage(_Model):
    """The claim made for `modelDir`, where no volumeMount of yours covers it."""

    size: Quantity = "10Gi"
    storage_class_name: ObjectName | None = None
    """Left out, the cluster's default."""
    access_modes: Annotated[
        Items[Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]], Field(min_length=1)
    ] = ("ReadWriteOnce",)
    """Without ReadWriteMany, the pods that share the claim are placed on one node."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Delete: `delete` removes the claim with the run, and with it the model. Nothing else does: a run that
    was stopped or has failed resumes from it when it is submitted again."""


class Scheduling(_Model):
    """Who decides when and where the pods start."""

    priority_class_name: ObjectName | None = None
    scheduler_name: ObjectName | None = None
    """Left out, with gang: Volcano `volcano`, with gang: Coscheduling `scheduler-plugins-scheduler`."""
    queue: DnsLabel | None = None
    """What admits the run: a LocalQueue (Kueue's) of its namespace, or with gang: Volcano a Queue."""
    gang: Gang | None = None
    """Who starts all that the strategy needs together. Left out: Kueue, if there is a queue."""
    min_member: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Volcano, Coscheduling: how many tasks are started together. Left out: those that the strategy needs."""
    min_resources: dict[str, Quantity] = {}
    """Volcano, Coscheduling: what must be free before any is started. Left out, the scheduler's own guess."""
    schedule_timeout_seconds: Seconds | None = None
    """Coscheduling: how long the tasks wait for each other."""


class StrategyOptions(_Model):
    """What the strategy itself takes. Each option says whose it is; another strategy refuses it."""

    partitioner: Literal["MinSize", "MaxSize", "FixedShards"] | None = None
    """ParameterServer: how variables are split over the parameter servers, by one of their dimensions, as
    TensorFlow's classes of these names do. MinSize: into as many shards as maxShards and minShardBytes allow;
    MaxSize: into as few as maxShardBytes allows; FixedShards: into numShards. Left out: MinSize."""
    min_shard_bytes: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MinSize: a shard has no fewer bytes, but for rounding. Left out: 262144."""
    max_shard_bytes: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MaxSize: a shard has no more bytes, unless maxShards keeps it from being split."""
    max_shards: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MinSize and MaxSize: a variable has no more shards. Left out: as many as there are
    parameter servers with MinSize, any number with MaxSize."""
    num_shards: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, FixedShards: how many shards a variable has, unless its first dimension is shorter."""
    bytes_per_string: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MinSize and MaxSize: what a string in a variable counts for. Left out: 16."""
    device: Text | None = None
    """OneDevice: the device, such as GPU:0. Left out: the first GPU, or the CPU."""
    devices: Annotated[Items[Text], Field(min_length=1)] | None = None
    """Mirrored: the devices, each a replica, such as [GPU:0, GPU:1]. Left out: all GPUs, or the CPU."""
    cross_device_ops: Literal["Nccl", "HierarchicalCopy", "ReductionToOneDevice"] | None = None
    """Mirrored: how gradients are summed over the devices. Left out: TensorFlow's choice, Nccl on GPUs."""
    num_packs: Annotated[int, Field(ge=0)] | None = None
    """Mirrored, with Nccl or HierarchicalCopy: into how many packs the gradients are put. Left out: 1."""
    communication: Literal["AUTO", "RING", "NCCL"] | None = None
    """MultiWorkerMirrored: what carries the collectives. Left out: AUTO."""
    bytes_per_pack: Annotated[int, Field(ge=0)] | None = None
    """MultiWorkerMirrored: gradients are sent in packs of so many bytes. Left out, or 0: TensorFlow's
    choice."""
    auto_shard: Literal["AUTO", "FILE", "DATA", "OFF"] | None = None
    """MultiWorkerMirrored: how the training data is shared out. FILE: each worker reads files of its own;
    DATA: each reads all and keeps its share; OFF: each trains on all of it, and shuffles for itself.
    Left out: the dataset's own option, or AUTO, which is FILE where that works and else DATA."""
    logical_cpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """Mirrored, CentralStorage, MultiWorkerMirrored: a task without GPUs has so many devices, each a replica,
    to try out what several GPUs would do. Left out: 1."""
    accelerator: LabelValue | None = None
    """TPU: GKE's name of the slice, such as tpu-v5-lite-podslice. It selects the node."""
    topology: Annotated[str, Field(pattern=r"^[1-9]\d*x[1-9]\d*(x[1-9]\d*)?$")] | None = None
    """TPU: GKE's shape of the slice, such as 2x4. It selects the node, and the pod asks for so many chips."""
    success_policy: Literal["FirstWorker", "AllWorkers"] | None = None
    """Custom without a chief: whose success is the run's. FirstWorker: worker 0's, which ends the others;
    AllWorkers: that of all workers together. Left out: FirstWorker."""
    chief_task_type: Literal["chief", "master"] | None = None
    """Custom: what TF_CONFIG calls the chief. TensorFlow 1's Estimator knows a master, TensorFlow 2 does not.
    Left out: chief."""


class Evaluation(_Model):
    """How the trained model is scored."""

    method: Literal["Loop", "SidecarEvaluator"] = "Loop"
    """The evaluator's. Loop: the launcher's own, over the checkpoints as they come. SidecarEvaluator:
    Keras' class of that name, which always takes the latest."""
    checkpoints: Literal["All", "Latest"] = "All"
    """Which checkpoints the evaluator's Loop scores: every one, or only the latest when it is ready for
    the next."""
    exact: bool = False
    """ParameterServer without an evaluator, in a custom loop: the chief reads the data once and hands it
    out, by tf.data service, to whichever worker is ready. Otherwise each worker reads all of the data and
    keeps its share. Each sample counts once either way, also where a worker is lost."""


class TensorBoard(_Model):
    """A TensorBoard that reads modelDir while the run is running, and after it until the run is deleted. On
    Kubernetes it is a Deployment, which nobody reaches but by the command `tensorboard`, through the API
    server. On this machine the command starts one, whether it is asked for here or not.
    """

    image: Text | None = None
    """One with TensorBoard in it, as the worker image has. Left out, the primary role's."""
    resources: Resources = {"cpu": "100m", "memory": "1Gi"}
    """As a role's."""
    node_selector: dict[LabelKey, LabelValue] = {}
    tolerations: Items[dict[str, Any]] = ()
    """Beside those of the primary role, where both must be on one node."""
    affinity: dict[str, Any] = {}


class Spec(_Model):
    """What is to be run."""

    strategy: Strategy
    """The tf.distribute strategy. Custom: whatever the image's own command makes of its TF_CONFIG; the roles
    are those that are given, and a role without a command runs the image's own."""
    strategy_options: StrategyOptions = Field(default_factory=StrategyOptions.model_construct)
    """What the strategy itself takes."""
    mode: Mode = "Train"
    """What is done with the model. Evaluate and Predict load a checkpoint that an earlier run left in
    modelDir, and change nothing of that run. Evaluate scores it on the program's evaluation_dataset, each
    example once. Predict writes predictions for its predict_dataset to modelDir's `predictions/<run>`.
    Neither starts an evaluator, nor heeds epochs."""
    checkpoint: CheckpointName | None = None
    """Evaluate, Predict: which checkpoint of modelDir's `checkpoints`, such as ckpt-3. Left out: the
    newest."""
    image: Text | None = None
    """Any with TensorFlow, such as tensorflow/tensorflow:2.21.0; left out, the launcher's own,
    tf-launcher-worker:dev. The local backend does without."""
    runtime: Literal["Travels", "Image"] | None = None
    """Where the worker runtime is from. Travels: it goes with the run, in a ConfigMap, and the image needs
    `python3` (3.9 or newer) and TensorFlow (2.16 or newer), nothing of the launcher's. Image: it is the
    image's, which must be of the launcher's version. Left out: Image for an image called tf-launcher-worker,
    whatever its registry and tag, else Travels. A script that the runtime does not start finds it if its
    `source` imports `worker`, or if Travels is given here."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """Left out, Kubernetes decides: Always for :latest or no tag, else IfNotPresent."""
    program: Program | None = None
    """What to train; or `command`, for an image's own script."""
    command: Items[Text] | None = None
    """Every role's command, in place of a program."""
    args: Items[Text] | None = None
    """Every role's arguments."""
    sparse_cluster_spec: bool | None = None
    """ParameterServer: whether a worker or ps sees only itself in TF_CONFIG. Left out: yes for a program,
    no for a command, which may count the workers in it. Custom: a worker then sees the ps too, and with
    restartPolicy Never the run continues without a worker that has failed. Left out: no."""
    model_dir: Text | None = None
    """Checkpoints, backup, logs and export: a path, in a volume of yours or else in a claim that is made for
    it; or a gs:// URL. Other URLs need an image of yours whose TensorFlow knows them."""
    storage: Storage | None = None
    """The claim that is made for `modelDir`."""
    chief: Role | None = None
    """Coordinates under ParameterServer, where it is always there; the one task of a one-task strategy; under
    Custom its success is the run's."""
    worker: Role | None = None
    """Trains. Without a chief, worker 0 is MultiWorkerMirrored's chief."""
    ps: Role | None = None
    """Parameter servers hold the variables; ParameterServer and Custom only."""
    evaluator: Role | None = None
    """Scores each checkpoint, beside the training."""
    evaluation: Evaluation = Field(default_factory=Evaluation.model_construct)
    """How the trained model is scored."""
    template: RoleTemplate = Field(default_factory=RoleTemplate.model_construct)
    """Defaults for all roles."""
    run_policy: RunPolicy = Field(default_factory=RunPolicy.model_construct)
    """When a task is retried, and when the run ends."""
    scheduling: Scheduling = Field(default_factory=Scheduling.model_construct)
    """Who decides when and where the pods start."""
    tensorboard: TensorBoard | None = None
    """A TensorBoard beside the run, which shows its curves."""


class TrainingCluster(_Model):
    """One run: the whole file."""

    api_version: Literal["launcher/v1alpha1"]
    kind: Literal["TrainingCluster"]
    metadata: Metadata
    spec: Spec
