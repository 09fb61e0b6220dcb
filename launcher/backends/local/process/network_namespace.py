"""A network for each run: Linux namespaces, which need no special rights.

TensorFlow's servers listen at every address of the machine and ask nobody who they are (grpc_server_lib.cc
has `0.0.0.0`; a ServerDef has a port and no host). In a network namespace with nothing but a loopback device
they answer the run's own tasks alone. A user namespace gives the right to make one; some machines forbid it
(containers by seccomp, sysctl `user.max_user_namespaces`, AppArmor on Ubuntu 24.04). Source:
user_namespaces(7), network_namespaces(7).
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from launcher.backends.local.process.mount_namespace import NEW_MOUNTS, unshare

_NEW_USER: Final = 0x10000000
_NEW_NET: Final = 0x40000000
"""CLONE_NEWUSER and CLONE_NEWNET of linux/sched.h."""

_GET_FLAGS: Final = 0x8913
_SET_FLAGS: Final = 0x8914
"""SIOCGIFFLAGS and SIOCSIFFLAGS of linux/sockios.h."""

_UP: Final = 0x1
"""IFF_UP of linux/if.h."""

_REQUEST: Final = struct.Struct("16sH22x")
"""A struct ifreq with flags."""


def forbidden() -> str:
    """Why a run cannot have a network of its own on this machine; "" if it can. This is tried in a process
    that then ends.
    """
    if sys.platform != "linux":
        return "only Linux has them"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            leave(network=False)
            os._exit(0)
        except OSError as error:
            os.write(write, (error.strerror or str(error)).encode())
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        reason = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return "" if status == 0 else reason or "it cannot be made"


def leave(*, network: bool) -> None:
    """Gives this process, which must have one thread, the right to mount. Without `network` it also leaves
    the machine's: it and all that it starts then have a loopback device of their own, and nothing else.
    Raises OSError.
    """
    user, group = os.geteuid(), os.getegid()
    wanted = NEW_MOUNTS if network else _NEW_NET
    try:
        unshare(wanted)
    except PermissionError:
        unshare(_NEW_USER | wanted)
        # The user's own number, so that files stay the user's.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if network:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        answer = fcntl.ioctl(device, _GET_FLAGS, _REQUEST.pack(b"lo", 0))
        flags = _REQUEST.unpack(answer)[1]
        fcntl.ioctl(device, _SET_FLAGS, _REQUEST.pack(b"lo", flags | _UP))
