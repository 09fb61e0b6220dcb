"""Why a pod does not start: once, as long as the cause is the same, and with what to do. The texts are those
of kubelet and scheduler 1.36 with containerd 2.1.
"""

from __future__ import annotations

import pytest

from launcher.backends.kubernetes.state.waiting_reasons import cannot_be_mended, cannot_mend_itself, for_user

REFUSED = (
    'failed to resolve image: failed to do request: Head "https://localhost/v2/x/manifests/1": '
    "dial tcp 127.0.0.1:443: connect: connection refused"
)
PULLED = f'rpc error: code = Unavailable desc = failed to pull and unpack image "localhost/x:1": {REFUSED}'


def test_an_image_that_cannot_be_pulled_is_said_in_one_way() -> None:
    backing_off = f'Back-off pulling image "localhost/x:1": ErrImagePull: {PULLED}'
    assert for_user("ErrImagePull", PULLED) == for_user("ImagePullBackOff", backing_off)
    reason, message = for_user("ErrImagePull", PULLED)
    assert (reason, message.partition("; ")[0]) == ("ImagePullBackOff", REFUSED)
    assert "imagePullSecrets" in message
    assert for_user("ImagePullBackOff", "Back-off pulling image")[1].startswith("Back-off pulling image;")
    assert len(for_user("ErrImagePull", "<html>" * 1000)[1]) < 400


@pytest.mark.parametrize(
    ("reason", "message", "shown", "advice"),
    [
        (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No victims",
            "0/1 nodes are available: 1 Insufficient cpu",
            "ask for less cpu in resources, or wait until a node has as much free",
        ),
        (
            "Unschedulable",
            '0/1 nodes are available: persistentvolumeclaim "x" not found. not found',
            '0/1 nodes are available: persistentvolumeclaim "x" not found',
            "make the claim x, or mend its name: the pod starts then by itself",
        ),
        (
            "CreateContainerConfigError",
            'secret "absent" not found',
            'secret "absent" not found',
            "make the secret absent, or mend its name: the pod starts then by itself",
        ),
        (
            "CreateContainerConfigError",
            "couldn't find key k in ConfigMap ml/settings",
            "couldn't find key k in ConfigMap ml/settings",
            "add the key k to the ConfigMap settings, or mend its name: the pod starts then by itself",
        ),
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "c" : configmap references non-existent config key: k',
            'MountVolume.SetUp failed for volume "c" : configmap references non-existent config key: k',
            "add the key k, or mend items in volumes: the pod starts then by itself",
        ),
        (
            "ErrImageNeverPull",
            'Container image "x:1" is not present with pull policy of Never',
            'Container image "x:1" is not present with pull policy of Never',
            "load the image onto the nodes, or mend image or imagePullPolicy",
        ),
    ],
)
def test_what_is_missing_comes_with_what_to_do(reason: str, message: str, shown: str, advice: str) -> None:
    assert for_user(reason, message) == (reason, f"{shown}; {advice}")


RESTRICTED = 'violates PodSecurity "restricted:latest": '
REFUSALS = [
    (
        'error looking up service account ml/nosa: serviceaccount "nosa" not found',
        "make the ServiceAccount nosa, or mend serviceAccountName: the pod starts then by itself",
    ),
    (
        'pod rejected: RuntimeClass "nope" not found',
        "make the RuntimeClass nope, or mend runtimeClassName: the pod starts then by itself",
    ),
    (
        "no PriorityClass with name nope was found",
        "make the PriorityClass nope, or mend priorityClassName: the pod starts then by itself",
    ),
    (
        f'{RESTRICTED}restricted volume types (volume "d" uses restricted volume type "hostPath")',
        "mend volumes: the namespace does not allow all of them",
    ),
    (
        f'{RESTRICTED}runAsNonRoot != true (pod or container "p" must set securityContext.runAsNonRoot=true)',
        "mend podTemplate, or have the namespace's label pod-security.kubernetes.io/enforce allow it",
    ),
    (
        "[maximum memory usage per Container is 512Mi, but limit is 1Gi, maximum cpu usage per Pod is 1]",
        "ask for less memory, by resources.memory: a LimitRange of the namespace allows no more",
    ),
    (
        "minimum cpu usage per Container is 100m, but request is 10m",
        "ask for more cpu, by resources.cpu: a LimitRange of the namespace allows no less",
    ),
    (
        "failed quota: q: must specify limits.cpu for: tensorflow; requests.memory for: tensorflow",
        "set resources.limits.cpu: a quota of the namespace counts it",
    ),
]


@pytest.mark.parametrize(("words", "advice"), REFUSALS, ids=[words[:30] for words, _ in REFUSALS])
def test_a_pod_that_the_server_refuses_to_make_is_not_waited_for_without_end(words: str, advice: str) -> None:
    """The words of an API server 1.36. Each try gives the pod another name, and the roles' differ, too."""
    reason, message = for_user(
        "FailedCreate", f'Error creating: pods "w-chief-0-abcde" is forbidden: {words}'
    )
    assert (reason, message) == ("FailedCreate", f"{words.removeprefix('pod rejected: ')}; {advice}")
    assert cannot_mend_itself(reason, message)
    assert not cannot_be_mended(reason, message)


def test_a_quota_that_another_run_may_leave_is_waited_for() -> None:
    words = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    reason, message = for_user("FailedCreate", f'pods "w-chief-0-abcde" is forbidden: {words}')
    assert message == f"{words}; ask for less in resources, or wait until another run ends"
    assert not cannot_mend_itself(reason, message)
    busy = "Internal error occurred: failed calling webhook: connection refused"
    assert for_user("FailedCreate", f"Error creating: {busy}") == ("FailedCreate", busy)
    assert not cannot_mend_itself("FailedCreate", busy)


OF_RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    'failed: unable to start container process: exec: "python3": executable file not found in $PATH'
)


def test_a_command_that_the_image_lacks_is_named_and_ends_the_run() -> None:
    reason, message = for_user("StartError", OF_RUNC)
    assert message.startswith("the image has no python3; ")
    assert cannot_be_mended(reason, message)
    assert not cannot_be_mended(*for_user("StartError", "OCI runtime create failed: no space left on device"))
    assert (
        " TensorFlow and Python " in for_user("StartError", OF_RUNC.replace("python3", "/usr/bin/python"))[1]
    )
    for other in ("./train.sh", "pythonn", "python-train"):
        assert for_user("StartError", OF_RUNC.replace("python3", other))[1] == (
            f"the image has no {other}; mend command, or name an image that has it"
        )


@pytest.mark.parametrize(
    ("message", "is_so"),
    [
        ('MountVolume.SetUp failed for volume "s" : secret "nope" not found', True),
        ('0/1 nodes are available: persistentvolumeclaim "nope" not found', True),
        ('MountVolume.SetUp failed for volume "c" : configmap references non-existent config key: k', True),
        ('claim x-model: storageclass.storage.k8s.io "nope" not found', True),
        ("0/1 nodes are available: 1 Insufficient cpu", False),
    ],
)
def test_what_somebody_has_to_make_is_told_from_what_becomes_free(message: str, is_so: bool) -> None:
    assert cannot_mend_itself("Unschedulable", message) is is_so


@pytest.mark.parametrize("reason", ["", "CrashLoopBackOff", "Evicted"])
def test_other_reasons_stay_as_they_are(reason: str) -> None:
    assert for_user(reason, "secret not found") == (reason, "secret not found")
