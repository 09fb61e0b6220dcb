"""The file that the user writes, as frozen pydantic models. A check here needs one field only; the checks
that need several are in `launcher.validation.rules`.

Field names are those of Kubernetes where it has one. Durations are in seconds, and their names say so.
"""

# Annotations are evaluated at definition: pydantic would have to evaluate each from its text, which takes a
# fifth of this module's import.

import posixpath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.alias_generators import to_camel

from launcher.config import package_lines
from launcher.config.role_fields import RoleField, apart, by, entries, joined, maps
from launcher.config.value_types import (
    ArchiveUrl,
    CheckpointName,
    Cidr,
    Commit,
    Count,
    DnsLabel,
    EnvName,
    FolderPath,
    HttpUrl,
    ImageName,
    Items,
    LabelKey,
    LabelValue,
    MountPath,
    Named,
    ObjectName,
    Package,
    Quantity,
    RunName,
    ScriptPath,
    Seconds,
    Sha256,
    Size,
    Text,
)
from worker.contract.notebook_lines import NOTEBOOK
from worker.contract.strategies import StrategyName

API_VERSION = "launcher/v1alpha1"

RoleName = Literal["chief", "worker", "extra-worker", "ps", "evaluator", "dispatcher", "data-worker"]
"""The last two are of `spec.dataService`; the file has no field of their names."""
Mode = Literal["Train", "Evaluate", "Predict"]
Gang = Literal["Kueue", "Volcano", "Coscheduling", "Kubernetes"]


class _Model(BaseModel):
    # A default that is a model is made by a factory, and by `model_construct`: otherwise pydantic would build
    # a validator for a value that needs no check.
    model_config = ConfigDict(
        alias_generator=to_camel,
        # In Python both names are valid; in a file only the aliases are, see `loader`.
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
        defer_build=True,
        serialize_by_alias=True,
    )


class Metadata(_Model):
    """The run's name, namespace, labels and annotations."""

    name: RunName
    """The run's name. Every object's name begins with it."""
    namespace: DnsLabel = "default"
    """The run's namespace."""
    labels: dict[LabelKey, LabelValue] = {}
    """Added to every object and every pod."""
    annotations: dict[LabelKey, Text] = {}
    """Added to every object and every pod."""


class EnvVar(_Model):
    """An environment variable, by value or by reference."""

    name: EnvName
    value: Text | None = None
    """Taken literally: `$(NAME)` is not replaced, unlike in a pod's own manifest."""
    value_from: dict[str, Any] | None = None
    """Kubernetes' EnvVarSource: secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef."""


class VolumeMount(_Model):
    """Where a volume is mounted."""

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


def requirements(resources: Resources) -> dict[str, dict[str, str]]:
    """Kubernetes' ResourceRequirements."""
    if isinstance(resources, Requirements):
        return {name: value for name, value in resources.model_dump().items() if value}
    limits = {name: value for name, value in resources.items() if name != "cpu"}
    both = {"requests": dict(resources), "limits": limits}
    return {name: value for name, value in both.items() if value}


def _name(entry: Any) -> object:
    return entry["name"]


class JobMetadata(_Model):
    """Labels and annotations of a Job, for controllers that act on Jobs and not on pods."""

    labels: dict[LabelKey, LabelValue] = {}
    annotations: dict[LabelKey, Text] = {}


class RoleTemplate(_Model):
    """The fields of every role. A role's own fields override `spec.template`; maps and lists of named entries
    are merged entry by entry.
    """

    # A field of a pod is declared here, and nowhere else: its RoleField says what becomes of it.

    image: Annotated[ImageName | None, RoleField("container", ignored_here=True)] = None
    """The role's own image, in place of `spec.image`."""
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None, RoleField("container", beside="image")
    ] = None
    image_pull_secrets: Annotated[Named, RoleField("pod", by(_name), ignored_here=True, beside="image")] = ()
    command: Annotated[Items[Text] | None, RoleField("container", of_program=True)] = None
    """The container's command, in place of the worker runtime's."""
    args: Annotated[Items[Text] | None, RoleField("container", of_program=True)] = None
    """The command's arguments, taken literally."""
    working_dir: Annotated[MountPath | None, RoleField("container", of_program=True)] = None
    env: Annotated[
        Items[EnvVar], RoleField("container", by(lambda variable: variable.name), beside="credentials")
    ] = ()
    env_from: Annotated[Items[dict[str, Any]], RoleField("container", joined, beside="credentials")] = ()
    """Kubernetes' EnvFromSource: whole ConfigMaps or Secrets as environment."""
    resources: Annotated[Resources, RoleField("container", form=requirements, ignored_here=True)] = {}
    """Either `{cpu: 1, memory: 2Gi, nvidia.com/gpu: 1}`: each is requested, and all but cpu are the limit too
    (a limit on cpu throttles TensorFlow's thread pools); or Kubernetes' own requests and limits. A role with
    GPUs gets 1Gi of shared memory at /dev/shm, unless a volume is mounted there.
    """
    allow_cpu: Annotated[bool | None, RoleField(of_program=True)] = None
    """Whether a task of the worker runtime that asks for GPUs continues with the CPU where its TensorFlow
    sees none. Left out, or false: the task fails, and says what to do.
    """
    volumes: Annotated[Named, RoleField("pod", by(_name))] = ()
    """Kubernetes' volumes."""
    volume_mounts: Annotated[
        Items[VolumeMount], RoleField("container", by(lambda mount: mount.mount_path))
    ] = ()
    node_selector: Annotated[dict[LabelKey, LabelValue], RoleField("pod", entries, ignored_here=True)] = {}
    tolerations: Annotated[
        Items[dict[str, Any]], RoleField("pod", joined, ignored_here=True, beside="node")
    ] = ()
    affinity: Annotated[dict[str, Any], RoleField("pod", ignored_here=True)] = {}
    """Kubernetes' affinity."""
    service_account_name: Annotated[
        ObjectName | None, RoleField("pod", ignored_here=True, beside="credentials")
    ] = None
    runtime_class_name: Annotated[ObjectName | None, RoleField("pod", ignored_here=True)] = None
    """The RuntimeClass that runs the pods' containers, such as nvidia. Left out: the node's default."""
    port: Annotated[Annotated[int, Field(ge=1, le=65_535)] | None, RoleField()] = None
    """Custom: the port on which the tasks listen, as TF_CONFIG says. Left out: 2222."""
    restart_policy: Annotated[Literal["OnFailure", "Never", "ExitCode"] | None, RoleField()] = None
    """Custom: which failed tasks are retried. OnFailure: all; Never: none; ExitCode: those that ended with
    128 to 255, while 1 to 127 fails the run at once. Left out: OnFailure.
    """
    job_metadata: Annotated[JobMetadata, RoleField(merge=maps)] = Field(
        default_factory=JobMetadata.model_construct
    )
    """Added to the role's Job, and in a JobSet to its replicatedJob."""
    pod_template: Annotated[dict[str, Any], RoleField(merge=apart)] = {}
    """A partial PodTemplateSpec for all other fields. It is merged last, as a strategic merge patch, with
    null, `$patch` and `$retainKeys`. The container is called tensorflow.
    """


class Role(RoleTemplate):
    """One role: its fields and its number of tasks."""

    replicas: Count = 1
    """Number of tasks of the role."""


class WorkerRole(Role):
    """The workers. With minReplicas the run is elastic: it starts with that many, takes in whoever comes, and
    continues without whoever is lost for good.
    """

    min_replicas: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Makes the run elastic: the least number of workers with which it trains. Left out: all workers are
    needed, and their number stays what it is.
    """
    max_replicas: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """With minReplicas: the greatest number that the workers may have. Left out: `replicas`."""


class GitSource(_Model):
    """A folder of a git repository. The tasks fetch it by git, which their image must have."""

    url: HttpUrl
    """By https or http."""
    commit: Commit
    """Its whole hash: a branch or a tag may change."""
    path: FolderPath | None = None
    """The folder in it. Left out: all of it."""
    secret_name: ObjectName | None = None
    """The Secret with the keys username and password, of the run's namespace."""


class ArchiveSource(_Model):
    """A zip or tar archive. The tasks download it."""

    url: ArchiveUrl
    """By https, s3 (as `storage` says how that is reached) or gs."""
    sha256: Sha256
    path: FolderPath | None = None
    """The folder in it. Left out: all of it."""


class RemoteSource(_Model):
    """A source that the tasks fetch: of git, or of archive."""

    git: GitSource | None = None
    archive: ArchiveSource | None = None

    @model_validator(mode="after")
    def _one(self) -> "RemoteSource":
        if (self.git is None) == (self.archive is None):
            raise ValueError("expected git or archive")
        return self


def _place(value: object) -> str:
    return FETCHED_FORM if isinstance(value, dict | RemoteSource) else PATH_FORM


PATH_FORM = "(path)"
FETCHED_FORM = "(fetched)"
Source = Annotated[
    Annotated[Text, Tag(PATH_FORM)] | Annotated[RemoteSource, Tag(FETCHED_FORM)], Discriminator(_place)
]


FORMS: Final = (FLAT_FORM, FULL_FORM, PATH_FORM, FETCHED_FORM)
"""What pydantic adds to the place of a problem in a value that may have either form."""


class Program(_Model):
    """A training program: plain Python with a model and a dataset, or a script that calls Keras' `fit`."""

    source: Source | None = None
    """A .py file or a folder beside this file, of 20 MB at most, which ConfigMaps carry to the pods; or `git`
    or `archive`, which the tasks fetch. Without it, the entrypoint is a module of the image, and the script
    the only file.
    """
    entrypoint: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")] | None = None
    """`module:object`, such as `mnist:Mnist`. Left out where a `command` runs the source itself."""
    script: ScriptPath | None = None
    """In place of an entrypoint: a Keras script, which is run unchanged and trained by the strategy. A .py
    file or a notebook beside this file; with `source`, a file in it.
    """
    args: Items[Text] = ()
    """The script's arguments: its `sys.argv[1:]`."""
    keras: Literal[2, 3] | None = None
    """The Keras behind tf.keras in the program: 2 is tf_keras, 3 is Keras 3. The default is 2 where the image
    has tf_keras, as the launcher's own has, else 3; of a script it is that of `python SCRIPT`, 3 without
    TF_USE_LEGACY_KERAS=1. A program that imports `keras` trains with Keras 3 in any case: the runtime sees
    which Keras its model is of.
    """
    packages: Annotated[Items[Package], AfterValidator(package_lines.hashed)] = ()
    """What the program needs beside the image, as lines of pip's: `scikit-learn==1.7.0`, with
    `--hash=sha256:...` behind each or behind none. pip installs it when a task starts, into a volume of the
    pod's own; what TensorFlow and Keras need keeps the image's versions.
    """
    packages_cache: MountPath | None = None
    """A directory in a volume of yours, where the packages are installed once for all that mount it."""
    parameters: dict[str, Any] = {}
    """Passed to the program unchanged. The runtime itself reads epochs, stepsPerEpoch, globalBatchSize or
    batchSizePerReplica, stepsPerExecution, checkpointEpochs, keepCheckpoints (how many stay, 5 if left out)
    and iteration. A name that is similar to one of these is refused, unless the program's source has it as a
    string, as in `parameters["steps"]`. A dataDir that is an s3:// URL is copied to the disk of each task
    that reads the data, up to dataLimitGB (10^9 bytes, 10 if left out), and the program is given the local
    directory. A script is passed none; its `fit` says all but checkpointEpochs, keepCheckpoints and
    stepsPerExecution.
    """

    @property
    def trained(self) -> str | None:
        """The entrypoint or script, which the runtime trains; None where a command runs the source."""
        return self.entrypoint or self.script

    @property
    def shipped(self) -> str | None:
        """The file or folder that travels with the run."""
        if isinstance(self.source, RemoteSource):
            return None
        return self.script if self.source is None else self.source

    @property
    def script_file(self) -> str | None:
        """The script's path below the shipped folder, or the shipped file's name; of a notebook, that of the
        script that is made of it.
        """
        if self.script is None:
            return None
        path = posixpath.normpath(self.script)
        path = posixpath.basename(path) if self.source is None else path
        return f"{path}.py" if path.endswith(NOTEBOOK) else path


class RunPolicy(_Model):
    """When a task is retried, and when the run ends."""

    backoff_limit: Count | None = 3
    """Number of retries of each task, each with a new pod; under Custom, of all tasks of a role together.
    null sets no limit.
    """
    restarts_in_place: Annotated[int, Field(ge=0, le=1000)] = 3
    """How often within ten minutes a training process that was killed, or has lost another task, is started
    again in its pod, at once and without using up a retry. After that the pod fails, and is retried. 0: every
    such failure is the pod's. It has no effect on a `command` that is not `python -m worker`.
    """
    active_deadline_seconds: Seconds | None = None
    """The run fails when it has lasted longer."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = 3600
    """A finished run is deleted after this time; null keeps it."""
    clean_policy: Literal["Running", "All", "None"] = "Running"
    """What is removed when the run ends. Running stops the tasks that still run. All also deletes the
    finished pods, with their logs. None removes nothing. On Kubernetes the command that follows the run does
    it; where no command follows, everything stays until ttlSecondsAfterFinished is over."""
    suspend: bool = False
    """Creates the run without starting it."""
    starting_deadline_seconds: Seconds = 900
    """How long the chief waits for its peers to answer, and a command that follows the run for pods that
    start only if somebody mends something, such as an image's name; where it is given, and neither queue nor
    gang, also for pods that wait for room on a node.
    """
    stall_seconds: Annotated[int, Field(ge=5, le=2**31 - 1)] = 600
    """The chief is restarted after this time without progress. It must be longer than the longest step, and
    than the trace of the first step.
    """
    chief_lost_seconds: Annotated[int, Field(ge=5, le=2**31 - 1)] = 900
    """A task that could not reach its chief for this time fails, and is retried as after any failure: in a
    new pod it waits for the chief again.
    """


class Storage(_Model):
    """The claim that is made for `modelDir`, where no volumeMount of yours covers that path; or how an s3://
    URL is reached, that of `modelDir` and of the program's `dataDir`.
    """

    size: Size = "10Gi"
    storage_class_name: ObjectName | None = None
    """Left out: the cluster's default."""
    access_modes: Annotated[
        Items[Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]], Field(min_length=1)
    ] = ("ReadWriteOnce",)
    """Without ReadWriteMany, the pods that share the claim are placed on one node."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Delete: the command `delete` removes the claim with the run, and the model with it. Nothing else
    removes the claim: a run that was stopped or has failed resumes from it when it is submitted again.
    """
    endpoint: HttpUrl | None = None
    """s3: the server's URL, such as https://minio.example.com:9000. Left out: AWS."""
    region: Text | None = None
    """s3: the bucket's region. Left out: us-east-1, which other servers than AWS' take."""
    secret_name: ObjectName | None = None
    """s3: the Secret with the credentials, of the run's namespace, by the keys AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY and, if there is one, AWS_SESSION_TOKEN. Left out: the pod's identity, of its
    service account or its node.
    """


class Scheduling(_Model):
    """Which scheduler or queue decides when and where the pods start."""

    priority_class_name: Annotated[ObjectName | None, RoleField("pod", ignored_here=True)] = None
    scheduler_name: Annotated[ObjectName | None, RoleField("pod", ignored_here=True)] = None
    """Left out, with gang: Volcano `volcano`, with gang: Coscheduling `scheduler-plugins-scheduler`."""
    queue: DnsLabel | None = None
    """The queue that admits the run: a LocalQueue (Kueue's) of its namespace, or with gang:
    Volcano a Queue.
    """
    gang: Gang | None = None
    """The scheduler that starts all tasks that the strategy needs together; Kubernetes is the cluster's
    own. Left out: Kueue, if there is a queue.
    """
    min_member: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Volcano, Coscheduling, Kubernetes: how many tasks start together. Left out: the number that the
    strategy needs.
    """
    min_resources: dict[str, Quantity] = {}
    """Volcano, Coscheduling: the resources that must be free before any task starts. Left out: the
    scheduler's own estimate.
    """
    schedule_timeout_seconds: Seconds | None = None
    """Coscheduling: how long the tasks wait for each other."""


class StrategyOptions(_Model):
    """Options of the strategy. Each option's text names its strategies; any other strategy refuses it."""

    partitioner: Literal["MinSize", "MaxSize", "FixedShards"] | None = None
    """ParameterServer: how variables are split over the parameter servers, by one of their dimensions, as
    TensorFlow's classes of these names do. MinSize: into as many shards as maxShards and minShardBytes allow;
    MaxSize: into as few as maxShardBytes allows; FixedShards: into numShards. Left out: MinSize."""
    min_shard_bytes: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MinSize: the least size of a shard, except for rounding. Left out: 262144."""
    max_shard_bytes: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MaxSize: the greatest size of a shard, unless maxShards prevents another split."""
    max_shards: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MinSize and MaxSize: the greatest number of a variable's shards. Left out: the number
    of parameter servers with MinSize, any number with MaxSize.
    """
    num_shards: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, FixedShards: the number of a variable's shards, unless its first dimension
    is shorter.
    """
    bytes_per_string: Annotated[int, Field(ge=1)] | None = None
    """ParameterServer, MinSize and MaxSize: the size that is assumed of a string in a variable.
    Left out: 16.
    """
    device: Text | None = None
    """OneDevice: the device, such as GPU:0. Left out: the first GPU, or the CPU."""
    devices: Annotated[Items[Text], Field(min_length=1)] | None = None
    """Mirrored: the devices, each a replica, such as [GPU:0, GPU:1]. Left out: all GPUs, or the CPU."""
    cross_device_ops: Literal["Nccl", "HierarchicalCopy", "ReductionToOneDevice"] | None = None
    """Mirrored: how gradients are summed over the devices. Left out: TensorFlow's choice, Nccl on GPUs."""
    num_packs: Annotated[int, Field(ge=0)] | None = None
    """Mirrored, with Nccl or HierarchicalCopy: the number of packs into which the gradients are put. Left
    out: 1.
    """
    communication: Literal["AUTO", "RING", "NCCL"] | None = None
    """MultiWorkerMirrored: the implementation of the collectives. Left out: AUTO."""
    bytes_per_pack: Annotated[int, Field(ge=0)] | None = None
    """MultiWorkerMirrored: gradients are sent in packs of this many bytes. Left out, or 0: TensorFlow's
    choice.
    """
    auto_shard: Literal["AUTO", "FILE", "DATA", "OFF"] | None = None
    """MultiWorkerMirrored: how the workers share the training data. FILE: each worker reads files of its own;
    DATA: each reads all and keeps its share; OFF: each trains on all of it, and shuffles for itself. Left
    out: the dataset's own option, or AUTO, which is FILE where that works and else DATA; of a script it is
    DATA.
    """
    logical_cpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """Mirrored, CentralStorage, MultiWorkerMirrored: a task without GPUs has this many devices, each a
    replica, to try how the program runs on several GPUs. Left out: 1.
    """
    gpu_memory_mb: Annotated[int, Field(ge=1)] | None = Field(default=None, alias="gpuMemoryMB")
    """OneDevice, Mirrored, CentralStorage, MultiWorkerMirrored, ParameterServer: the memory that each task
    takes of each of its GPUs at most, in MiB, so that tasks can share a GPU. Left out: no limit. A task takes
    what it needs, as it needs it, and keeps it.
    """
    logical_gpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """Mirrored, CentralStorage, MultiWorkerMirrored: each GPU of a task is so many devices, each a replica,
    with gpuMemoryMB of memory, to try on one GPU how the program runs on several. Left out: 1.
    """
    accelerator: LabelValue | None = None
    """TPU: GKE's name of the slice, such as tpu-v5-lite-podslice. It selects the node."""
    topology: Annotated[str, Field(pattern=r"^[1-9]\d*x[1-9]\d*(x[1-9]\d*)?$")] | None = None
    """TPU: GKE's shape of the slice, of one host, such as 2x4. It selects the node, and gives the number of
    chips that the pod requests.
    """
    success_policy: Literal["FirstWorker", "AllWorkers"] | None = None
    """Custom without a chief: whose success is the run's. FirstWorker: worker 0's, and its end ends the
    others; AllWorkers: that of all workers together. Left out: FirstWorker.
    """
    chief_task_type: Literal["chief", "master"] | None = None
    """Custom: the chief's type in TF_CONFIG. TensorFlow 1's Estimator knows a master, TensorFlow 2 does not.
    Left out: chief.
    """


class Evaluation(_Model):
    """How the trained model is scored."""

    method: Literal["Loop", "SidecarEvaluator"] = "Loop"
    """The evaluator's method. Loop: the launcher's own, which scores the checkpoints as they appear.
    SidecarEvaluator: Keras' class of that name, which always takes the latest checkpoint.
    """
    checkpoints: Literal["All", "Latest"] = "All"
    """Which checkpoints the evaluator's Loop scores: every one, or only the latest when it is ready for
    the next."""
    exact: bool = False
    """ParameterServer without an evaluator: the chief reads the data once and sends it, by tf.data service,
    to whichever worker is free. Otherwise it does so with shuffled data only, and each worker reads all of
    the data and keeps its share. Each sample counts once in both cases, also where a worker is lost.
    """


class KeepBest(_Model):
    """The best epoch by a metric."""

    metric: Text
    """By the name in the epoch's line, such as accuracy; val_accuracy is that on the evaluation dataset, also
    where an evaluator scores it.
    """
    mode: Literal["Min", "Max"]
    """Which of two values is better."""


class Checkpoints(_Model):
    """When the training is saved to modelDir, and which checkpoints stay."""

    every_seconds: Seconds | None = None
    """Between two checkpoints in the middle of an epoch. Where neither this nor everySteps is given, the
    runtime chooses: it measures what a save costs, and all saves take at most 1% of the time.
    """
    every_steps: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """At least as many steps are between two: a checkpoint comes at the end of an execution, see
    stepsPerExecution.
    """
    every_epochs: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """At the end of every so many epochs; 1 if left out. The last epoch always has one. The evaluator scores
    these, and only these.
    """
    keep: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """How many of the epochs' checkpoints stay, the newest; 5 if left out."""
    keep_best: KeepBest | None = None
    """Keeps the checkpoint of the best epoch, too."""


MOST_DATA_WORKERS: Final = 1_000


class DataService(RoleTemplate):
    """TensorFlow's tf.data service beside the run: data workers carry out train_dataset(), and the tasks that
    train receive its batches. The fields of a role are those of the data workers, over `spec.template`. The
    dispatcher, which tells the data workers what to do, has them too, except `resources`.
    """

    workers: Annotated[int, Field(ge=1, le=MOST_DATA_WORKERS)]
    """Number of data workers, which `scale` changes while the run is running."""
    sharding: Literal["Dynamic", "Off", "FileOrData"] = "Dynamic"
    """How the data workers share the data, by TensorFlow's ShardingPolicy. Dynamic (DYNAMIC): a pass is cut
    into parts, and each takes the next one that none has taken; an example is visited once an epoch, also
    where the run is interrupted, or not at all where a data worker is lost. FileOrData (FILE_OR_DATA): each
    has a fixed part, of the files or else of the examples; an example is visited at least once where a data
    worker is lost, and the others wait for its return. Its shuffle before the parts needs a seed: else some
    examples are in two parts and others in none. Off (OFF): each has all of the data, in an order of its own;
    nothing is said of how often an example is visited.
    """
    share_across_workers: bool | None = None
    """MultiWorkerMirrored, ParameterServer: whether the tasks that train share one pass over the data.
    Under MultiWorkerMirrored they then take the parts of the same batches (TensorFlow's coordinated reads),
    which the first task collects and sends; under ParameterServer a worker takes the next batch when it is
    free. false: each task has all of the data. Left out: true.
    """


class TensorBoard(_Model):
    """A TensorBoard that reads modelDir while the run lasts, and after it until the run is deleted. On
    Kubernetes it is a Deployment, which only the command `tensorboard` reaches, through the API server. On
    this machine the command starts a TensorBoard, whether the file asks for one or not.
    """

    image: Annotated[ImageName | None, RoleField("container")] = None
    """An image with TensorBoard, as the worker image has. Left out: the primary role's."""
    resources: Annotated[Resources, RoleField("container", form=requirements)] = {
        "cpu": "100m",
        "memory": "1Gi",
    }
    """As in a role."""
    node_selector: Annotated[dict[LabelKey, LabelValue], RoleField("pod")] = {}
    tolerations: Annotated[Items[dict[str, Any]], RoleField("pod", joined)] = ()
    """Added to those of the primary role, where both must be on one node."""
    affinity: Annotated[dict[str, Any], RoleField("pod")] = {}


class Requirement(_Model):
    """Kubernetes' LabelSelectorRequirement."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Items[LabelValue] | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Requirement":
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            raise ValueError("expected values with In and NotIn, and none with Exists and DoesNotExist")
        return self


class LabelSelector(_Model):
    """Kubernetes' LabelSelector. An empty one, {}, selects all."""

    match_labels: dict[LabelKey, LabelValue] | None = None
    match_expressions: Items[Requirement] | None = None


class IpBlock(_Model):
    """A range of IP addresses."""

    cidr: Cidr
    excluded: Items[Cidr] | None = Field(default=None, alias="except")
    """Ranges in it that are left out."""


class Peer(_Model):
    """Kubernetes' NetworkPolicyPeer: pods by podSelector, in the run's own namespace or in those of
    namespaceSelector; or an ipBlock.
    """

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IpBlock | None = None

    @model_validator(mode="after")
    def _one(self) -> "Peer":
        selects = self.pod_selector is not None or self.namespace_selector is not None
        if selects == (self.ip_block is not None):
            raise ValueError("expected podSelector or namespaceSelector, or both, or else ipBlock")
        return self


class PodMonitor(_Model):
    """A PodMonitor (monitoring.coreos.com/v1), by which the Prometheus operator's Prometheus finds the
    tasks.
    """

    labels: dict[LabelKey, LabelValue] = {}
    """Its labels, by which a Prometheus chooses its PodMonitors, such as release: prometheus."""
    interval_seconds: Seconds | None = None
    """Between two scrapes. Left out: the Prometheus' own."""


class Monitoring(_Model):
    """Each task's supervisor serves metrics for Prometheus, at `/metrics`."""

    port: Annotated[int, Field(ge=1024, le=65_535)]
    """The port of each pod. On this machine each task has another one."""
    scrapers: Items[Peer] = Field(alias="from")
    """Who may reach the port: the run's NetworkPolicy admits them there, and nowhere else. It has no effect
    on this machine, whose own processes reach the ports, and no others.
    """
    pod_monitor: PodMonitor | None = None
    """Made with the run. Left out: none."""


class Mlflow(_Model):
    """The server of MLflow and the experiment in which the run appears. The credentials are MLflow's own
    variables, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN, of a role's env
    or envFrom.
    """

    uri: HttpUrl
    experiment: Text = "Default"
    """It is made where it is missing."""


class Tracking(_Model):
    """Where the run's parameters and metrics are logged: once, whatever the number of its tasks."""

    mlflow: Mlflow


class Precheck(_Model):
    """Before it trains, each task measures how fast it multiplies matrices, writes and reads its disk and the
    model directory, and reaches a few of the other tasks.
    """

    exclude: bool = False
    """Whether a node that is far off from the others is left out when the run is started the next time: by
    `submit` or `resume`, until `delete`. It has no effect on this machine.
    """


def _precheck_form(value: object) -> str:
    return FULL_FORM if isinstance(value, dict | Precheck) else FLAT_FORM


class Spec(_Model):
    """The run: its strategy, program and roles."""

    strategy: StrategyName
    """The tf.distribute strategy. Custom: the image's own command uses its TF_CONFIG as it likes; the roles
    are those that the file gives, and a role without a command runs the image's own.
    """
    strategy_options: StrategyOptions = Field(default_factory=StrategyOptions.model_construct)
    """Options of the strategy."""
    mode: Mode = "Train"
    """What the run does with the model. Evaluate and Predict load a checkpoint that an earlier run left in
    modelDir, and change nothing of that run. Evaluate scores it on the program's evaluation_dataset, each
    example once. Predict writes predictions for its predict_dataset to modelDir's `predictions/<run>`. Both
    start no evaluator and ignore epochs.
    """
    checkpoint: CheckpointName | None = None
    """Evaluate, Predict: which checkpoint of modelDir's `checkpoints`, such as ckpt-3. Left out: the
    newest."""
    image: ImageName | None = None
    """Any image with TensorFlow, such as tensorflow/tensorflow:2.21.0. Left out: the launcher's own,
    tf-launcher-worker:dev. The local backend uses no image.
    """
    runtime: Literal["Travels", "Image"] | None = None
    """Where the worker runtime comes from. Travels: the run carries it in a ConfigMap, and the image needs
    `python3` (3.9 or newer) and TensorFlow (2.16 or newer), nothing of the launcher's. Image: the image has
    it, in the launcher's version. Left out: Image for an image called tf-launcher-worker, whatever its
    registry and tag, else Travels. A script that the runtime does not start finds it if its `source` imports
    `worker`, or if Travels is given here.
    """
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """Left out, Kubernetes decides: Always for :latest or no tag, else IfNotPresent."""
    program: Program | None = None
    """The program to train. For an image's own script, give `command` instead."""
    command: Items[Text] | None = None
    """Every role's command, in place of a program."""
    args: Items[Text] | None = None
    """Every role's arguments."""
    sparse_cluster_spec: bool | None = None
    """ParameterServer: whether a worker or ps sees only itself in TF_CONFIG. Left out: yes for a program, no
    for a command, which may count the workers in it. Custom: a worker then sees the ps too, and with
    restartPolicy Never the run continues without a worker that has failed. Left out: no.
    """
    model_dir: Text | None = None
    """Where checkpoints, backup, logs and export go: a path, in a volume of yours or else in a claim that is
    made for it; or an s3:// or gs:// URL. Other URLs need an image of yours whose TensorFlow supports them.
    """
    storage: Storage | None = None
    """The claim that is made for `modelDir`, or how an s3:// URL is reached."""
    chief: Role | None = None
    """The coordinator under ParameterServer, which always has one; the only task of a one-task strategy;
    under Custom, the task whose success is the run's.
    """
    worker: WorkerRole | None = None
    """Trains. Without a chief, worker 0 is MultiWorkerMirrored's chief."""
    ps: Role | None = None
    """Holds the variables as a parameter server; ParameterServer and Custom only."""
    evaluator: Role | None = None
    """Scores each checkpoint, beside the training."""
    data_service: DataService | None = None
    """Data workers that carry out train_dataset() beside the training."""
    evaluation: Evaluation = Field(default_factory=Evaluation.model_construct)
    """How the trained model is scored."""
    checkpoints: Checkpoints = Field(default_factory=Checkpoints.model_construct)
    """When the training is saved to modelDir, and which checkpoints stay."""
    template: RoleTemplate = Field(default_factory=RoleTemplate.model_construct)
    """Defaults for all roles."""
    run_policy: RunPolicy = Field(default_factory=RunPolicy.model_construct)
    """When a task is retried, and when the run ends."""
    scheduling: Scheduling = Field(default_factory=Scheduling.model_construct)
    """Which scheduler or queue decides when and where the pods start."""
    tensorboard: TensorBoard | None = None
    """A TensorBoard beside the run, which shows its curves."""
    monitoring: Monitoring | None = None
    """Metrics of every task, for Prometheus."""
    tracking: Tracking | None = None
    """An experiment tracker that follows the run."""
    precheck: Annotated[
        Annotated[bool, Tag(FLAT_FORM)] | Annotated[Precheck, Tag(FULL_FORM)], Discriminator(_precheck_form)
    ] = False
    """Whether each task measures its node before it trains, in at most 20 s: a node that is far off from the
    others is named.
    """

    @property
    def prechecks(self) -> Precheck | None:
        """What `precheck` says, in its long form; None where nothing is measured."""
        return self.precheck if isinstance(self.precheck, Precheck) else Precheck() if self.precheck else None

    @property
    def trains_program(self) -> bool:
        """Whether the runtime trains a program or a script; otherwise a command does as it likes."""
        return self.program is not None and self.program.trained is not None


class TrainingCluster(_Model):
    """One run: the whole file."""

    api_version: Literal["launcher/v1alpha1"]
    kind: Literal["TrainingCluster"]
    metadata: Metadata
    spec: Spec
