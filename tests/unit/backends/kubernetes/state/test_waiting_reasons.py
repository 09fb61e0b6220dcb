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
    ],
)
def test_what_is_missing_comes_with_what_to_do(reason: str, message: str, shown: str, advice: str) -> None:
    assert for_user(reason, message) == (reason, f"{shown}; {advice}")


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
        for_user("StartError", OF_RUNC.replace("python3", "./train.sh"))[1] == "the image has no ./train.sh"
    )


@pytest.mark.parametrize(
    ("message", "is_so"),
    [
        ('MountVolume.SetUp failed for volume "s" : secret "nope" not found', True),
        ('0/1 nodes are available: persistentvolumeclaim "nope" not found', True),
        ('claim x-model: storageclass.storage.k8s.io "nope" not found', True),
        ("0/1 nodes are available: 1 Insufficient cpu", False),
    ],
)
def test_what_somebody_has_to_make_is_told_from_what_becomes_free(message: str, is_so: bool) -> None:
    assert cannot_mend_itself("Unschedulable", message) is is_so


@pytest.mark.parametrize("reason", ["", "CrashLoopBackOff", "Evicted"])
def test_other_reasons_stay_as_they_are(reason: str) -> None:
    assert for_user(reason, "secret not found") == (reason, "secret not found")
