"""Brings a program's source into its folder, where no ConfigMap can be mounted there: from the parts of an
archive, from an archive's URL, or from a git repository.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from worker.buckets.bucket import Bucket, BucketError, check_library, is_bucket
from worker.contract.environment import GIT_KEYS
from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import FetchedSource
from worker.failures import Failure, program_error

_COMPLETE = "source-is-complete"
_MOST_BYTES = 2 << 30
"""Of an archive, and of what is in it."""
_CHUNK_BYTES = 1 << 20
_ANSWER_SECONDS = 60.0
_TEMPORARY = (408, 425, 429)
_AWAY = re.compile(
    r"Could not resolve host|Failed to connect|[Cc]onnection (?:refused|reset|timed out)|[Tt]imed out|"
    r"returned error: (?:408|429|5\d\d)|early EOF|RPC failed"
)
"""What git says of a server that does not answer, or not now."""
_REFUSED = 3
_COPY = f"""
import sys
import tensorflow as tf
try:
    tf.io.gfile.copy(sys.argv[1], sys.argv[2], overwrite=True)
except tf.errors.OpError as error:
    print(error.message)
    refused = tf.errors.NotFoundError, tf.errors.PermissionDeniedError, tf.errors.InvalidArgumentError
    sys.exit({_REFUSED} if isinstance(error, refused) else 1)
"""
"""Copies what TensorFlow's own file systems have."""
_ASKED = f'#!/bin/sh\ncase "$1" in U*) printf %s "${GIT_KEYS[0]}";; *) printf %s "${GIT_KEYS[1]}";; esac\n'

Member = tuple[PurePosixPath, Callable[[], "IO[bytes] | None"]]


def fetch(
    source: FetchedSource,
    parts: Sequence[str],
    folder: Path,
    scratch: Path,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    """Makes `folder` hold the source; one that an earlier process has fetched stays. `parts` are the files
    that the archive is divided into, and `scratch` is a folder of the task's own.

    Raises Failure with what was expected: RETRYABLE where a server does not answer, or `seconds` are over.
    """
    if (scratch / _COMPLETE).exists():
        return
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        if source.kind == "git":
            say(f"fetching {source.url} at {source.digest[:12]}")
            _clone(source, folder, scratch, seconds)
        else:
            with tempfile.TemporaryFile(dir=scratch) as file:
                if source.kind == "parts":
                    for part in parts:
                        file.write(Path(part).read_bytes())
                else:
                    say(f"downloading {source.url}")
                    _download(source.url, file, scratch, seconds)
                _check_digest(source, file)
                _unpack(source, file, folder)
        (scratch / _COMPLETE).touch()
    except OSError as error:
        raise program_error(f"spec.program.source: it cannot be written to {folder}: {error}") from error


def _check_digest(source: FetchedSource, file: IO[bytes]) -> None:
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    file.seek(0)
    if digest.hexdigest() == source.digest:
        return
    what = source.url or "the run's ConfigMaps"
    message = (
        f"spec.program.source: {what}: its SHA-256 is {digest.hexdigest()}, and the file says {source.digest}"
    )
    raise program_error(message)


def _download(url: str, file: IO[bytes], scratch: Path, seconds: float) -> None:
    if is_bucket(url):
        _from_bucket(url, file, scratch, seconds)
    elif url.startswith("gs://"):
        _by_tensorflow(url, file, scratch, seconds)
    else:
        _by_http(url, file)


def _by_http(url: str, file: IO[bytes]) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - http or https
            _copy(answer, file, url)
    except urllib.error.HTTPError as error:
        error.close()
        temporary = error.code >= 500 or error.code in _TEMPORARY
        raise _not_fetched(url, f"{error.code} {error.reason}", temporary) from error
    except urllib.error.URLError as error:
        trusted = not isinstance(error.reason, ssl.SSLCertVerificationError)
        raise _not_fetched(url, str(error.reason), trusted) from error
    except (TimeoutError, ConnectionError, EOFError) as error:
        raise _not_fetched(url, str(error) or type(error).__name__, True) from error


def _copy(stream: IO[bytes], file: IO[bytes], what: str) -> None:
    left = _MOST_BYTES
    while chunk := stream.read(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise program_error(
                f"spec.program.source: {what} has over {_MOST_BYTES >> 30} GiB: leave data out of it"
            )
        file.write(chunk)


def _from_bucket(url: str, file: IO[bytes], scratch: Path, seconds: float) -> None:
    check_library(url)
    folder, _, name = url.rpartition("/")
    try:
        stored = Bucket(folder, patience=seconds).read(name)
    except BucketError as error:
        raise error.as_failure() from None
    if stored is None:
        raise _not_fetched(url, "there is no such object", False)
    file.write(stored[0])


def _by_tensorflow(url: str, file: IO[bytes], scratch: Path, seconds: float) -> None:
    """In a process of its own: what a supervisor imports, its training processes have."""
    path = scratch / "archive"
    done = _answered(url, [sys.executable, "-c", _COPY, url, str(path)], os.environ, seconds)
    if done.returncode != 0:
        reason = " ".join((done.stdout or done.stderr).split())[-500:]
        raise _not_fetched(url, reason, done.returncode != _REFUSED)
    with path.open("rb") as copied:
        _copy(copied, file, url)
    path.unlink()


def _answered(
    url: str, command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _not_fetched(url, f"no answer within {seconds:.0f} s", True) from None


def _not_fetched(url: str, why: str, temporary: bool) -> Failure:
    message = f"spec.program.source: {url} cannot be fetched: {why}"
    return Failure(message, ExitCode.RETRYABLE if temporary else ExitCode.PROGRAM_ERROR)


def _unpack(source: FetchedSource, file: IO[bytes], folder: Path) -> None:
    what = source.url or "the archive"
    wanted = PurePosixPath(source.path)
    written = 0
    left = _MOST_BYTES
    try:
        for path, opened in _members(file, what):
            if not path.is_relative_to(wanted) or path == wanted:
                continue
            target = folder / path.relative_to(wanted)
            target.parent.mkdir(parents=True, exist_ok=True)
            stream = opened()
            if stream is None:
                continue
            with stream, target.open("wb") as out:
                while chunk := stream.read(_CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        message = f"{what} unpacks to over {_MOST_BYTES >> 30} GiB: leave data out of it"
                        raise program_error(f"spec.program.source: {message}")
                    out.write(chunk)
            written += 1
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError, RuntimeError) as error:
        raise program_error(f"spec.program.source: {what} cannot be unpacked: {error}") from error
    if not written:
        raise program_error(f"spec.program.source: {what} has no file in {source.path or 'it'}")


def _members(file: IO[bytes], what: str) -> Iterator[Member]:
    """Yields path and content of every file. Folders, links and devices are left out: so nothing is written
    through a link. Raises Failure where a path leads out of the archive.
    """
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if not entry.is_dir() and kind in (0, stat.S_IFREG):
                    yield _inside(entry.filename, what), lambda entry=entry: archive.open(entry)  # type: ignore[misc]
        return
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:*") as opened:
        for member in opened:
            if member.isfile():
                yield _inside(member.name, what), lambda member=member: opened.extractfile(member)  # type: ignore[misc]


def _inside(name: str, what: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise program_error(f"spec.program.source: {what} has a file outside of its folder: {name!r}")
    return path


def _clone(source: FetchedSource, folder: Path, scratch: Path, seconds: float) -> None:
    git = shutil.which("git")
    if git is None:
        raise program_error(
            "spec.program.source: the image has no git: use an image with git, or source.archive with the "
            "archive of that commit"
        )
    root = scratch / "repository"
    if root.exists():
        shutil.rmtree(root)
    asked = scratch / "askpass"
    asked.write_text(_ASKED, encoding="utf-8")
    asked.chmod(0o700)
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": str(asked), "LC_ALL": "C"}
    # A link would be a file with its target as the text; nothing but these two protocols is spoken.
    safe = (
        "core.symlinks=false",
        "protocol.allow=never",
        "protocol.http.allow=always",
        "protocol.https.allow=always",
    )
    settings = [word for each in safe for word in ("-c", each)]

    def call(*words: str) -> None:
        done = _answered(source.url, [git, *settings, *words], environment, seconds)
        if done.returncode != 0:
            message = " ".join(done.stderr.split())[-500:]
            raise _not_fetched(source.url, f"git says: {message}", _AWAY.search(message) is not None)

    call("init", "--quiet", "--template=", str(root))
    call("-C", str(root), "fetch", "--quiet", "--depth", "1", source.url, source.digest)
    call("-C", str(root), "checkout", "--quiet", "--detach", source.digest)
    asked.unlink()
    shutil.rmtree(root / ".git")
    wanted = root / source.path
    if not wanted.is_dir():
        raise program_error(f"spec.program.source: {source.url} has no folder {source.path} at that commit")
    shutil.copytree(wanted, folder, dirs_exist_ok=True)
    shutil.rmtree(root)
