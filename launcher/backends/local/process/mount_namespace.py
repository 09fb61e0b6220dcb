"""What a pod sees of the machine's files: its volumes where it mounts them, and no other pod's claims.

A mount namespace of the task's own, made between fork and exec by a process that may mount: `namespaces`. A
folder that is not there, such as /model, needs a parent that can be written: that is replaced by an empty one
in memory, where all that the real one holds is mounted again. Source: mount_namespaces(7), pivot_root(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NEW_MOUNTS: Final = 0x00020000
"""CLONE_NEWNS of linux/sched.h."""

_READ_ONLY: Final = 0x1
_REMOUNT: Final = 0x20
_BIND: Final = 0x1000
_RECURSIVE: Final = 0x4000
_UNBINDABLE: Final = 0x20000
_PRIVATE: Final = 0x40000
"""MS_* of linux/mount.h."""

_KEPT: Final = 0x2 | 0x4 | 0x8 | 0x400 | 0x800
"""MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME: statvfs(3) shows them as the same numbers."""

_RELATIVE_TIMES: Final = 0x200000
_SHOWN_RELATIVE_TIMES: Final = 0x1000
"""MS_RELATIME, and how statvfs(3) shows it."""

_DETACH: Final = 2
"""MNT_DETACH of the same."""

_OLD: Final = ".tf-launcher-machine"
"""Where the machine's root is while the view is made."""

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class View:
    """`mounts` maps a path to the folder that is to be seen there; `read_only` are those of these paths that
    nothing is to be written to. Of what the folders `closed` hold only `opened` is seen; the rest is not
    there. `scratch` is an empty folder, used while the view is made.
    """

    mounts: Mapping[str, str]
    closed: Sequence[str]
    opened: Sequence[str]
    scratch: str
    read_only: Sequence[str] = ()


def possible() -> bool:
    """Whether this process may give views to its children. This is tried in a process that then ends."""
    child = os.fork()
    if child == 0:
        try:
            _leave()
            _mount("tmpfs", "/", "tmpfs", 0)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def enter(view: View) -> None:
    """Gives this process, which must have one thread and may mount, the view. Raises OSError."""
    here = Path.cwd()
    _leave()
    for folder in view.closed:
        _close(folder, view.opened)
    mounts = {os.path.realpath(path): source for path, source in view.mounts.items()}
    if missing := [path for path in mounts if not Path(path).is_dir()]:
        _make(missing, Path(view.scratch))
    for path, source in sorted(mounts.items()):
        _mount(source, path, "", _BIND | _RECURSIVE)
    for path in view.read_only:
        _close_for_writing(os.path.realpath(path))
    os.chdir(here)


def unshare(namespaces: int) -> None:
    """Leaves the namespaces of these kinds, CLONE_NEW* of linux/sched.h, for new ones. Raises OSError."""
    _check(_libc.unshare(namespaces))


def _leave() -> None:
    unshare(NEW_MOUNTS)
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)


def _close(folder: str, opened: Sequence[str]) -> None:
    kept = {path: os.open(path, os.O_PATH) for path in opened if Path(path).is_relative_to(folder)}
    _mount("tmpfs", folder, "tmpfs", 0)
    for path, descriptor in kept.items():
        Path(path).mkdir(parents=True)
        _mount(f"/proc/self/fd/{descriptor}", path, "", _BIND | _RECURSIVE)
        os.close(descriptor)
    _close_for_writing(folder)


def _make(missing: Sequence[str], root: Path) -> None:
    """Creates the folders in a copy of this machine's root, and makes that the root."""
    copies = [_copy(Path("/"), root)]
    _mount("none", str(root), "", _UNBINDABLE)
    for path in missing:
        real, new = Path("/"), root
        for name in Path(path).parts[1:]:
            if not (new / name).exists():
                if new not in copies:
                    copies.append(_copy(real, new))
                (new / name).mkdir()
                copies.append(new / name)
            real, new = real / name, new / name
    (root / _OLD).mkdir()
    for copy in copies[1:]:
        if copy.is_mount():
            _close_for_writing(str(copy))
    _check(_libc.pivot_root(os.fsencode(root), os.fsencode(root / _OLD)))
    os.chdir("/")
    _check(_libc.umount2(os.fsencode(f"/{_OLD}"), _DETACH))
    Path("/", _OLD).rmdir()
    _close_for_writing("/")


def _copy(real: Path, new: Path) -> Path:
    """A folder in memory, with all that the real one holds."""
    _mount("tmpfs", str(new), "tmpfs", 0)
    for entry in list(os.scandir(real)):
        target = new / entry.name
        if entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
            continue
        if entry.is_dir():
            target.mkdir()
        else:
            target.touch()
        with contextlib.suppress(OSError):  # one that cannot be mounted is left out
            _mount(entry.path, str(target), "", _BIND | _RECURSIVE)
    return new


def _close_for_writing(path: str) -> None:
    # A namespace of the user's own may not lift what holds for the mount in the one above.
    here = os.statvfs(path).f_flag
    kept = here & _KEPT | (_RELATIVE_TIMES if here & _SHOWN_RELATIVE_TIMES else 0)
    _mount("none", path, "", _REMOUNT | _BIND | _READ_ONLY | kept)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, None))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
