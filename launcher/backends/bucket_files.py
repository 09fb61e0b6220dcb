"""The files of a run in a bucket of S3, read by this machine's user: with the credentials of this shell."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from launcher.backends import copied_files
from launcher.errors import BackendError
from worker.contract.environment import BUCKET_SCHEME

_LOGS: Final = "logs"
_LOOK_SECONDS: Final = 15.0
_CHECKPOINT: Final = re.compile(r"(.*ckpt-[\d-]+)\.(index|data-\d{5}-of-\d{5})")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_CREDENTIALS: Final = (
    "This command reads the bucket itself: export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of one who "
    "may read it."
)


def is_bucket(model_directory: str) -> bool:
    """Whether the model directory is one that this module reads."""
    return model_directory.startswith(f"{BUCKET_SCHEME}://")


class BucketFiles:
    """The objects below `url`. `storage` is the spec's, whose server they are on. All methods raise
    BackendError.
    """

    def __init__(self, url: str, storage: Mapping[str, Any]) -> None:
        self.url = url.rstrip("/")
        if importlib.util.find_spec("obstore") is None:
            raise BackendError(
                f"obstore is not installed for {sys.executable}, which reads {url}",
                "Install it: `python -m pip install obstore`.",
            )
        from obstore.store import S3Store

        bucket, _, prefix = self.url.partition("://")[2].partition("/")
        given = {"endpoint": storage.get("endpoint"), "region": storage.get("region")}
        options: Any = {name: value for name, value in given.items() if value}
        endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
        client: Any = {"allow_http": True} if endpoint.startswith("http://") else {}
        self._store = S3Store(bucket, prefix=prefix or None, client_options=client, **options)

    def names(self, inner: str) -> list[str]:
        """The objects at or below `inner`, of checkpoints those that are whole; sorted."""
        import obstore

        with _understood(self.url):
            pages = obstore.list(self._store, f"{inner}/" if inner else None)
            names = [str(each["path"]) for page in pages for each in page if each["path"] != inner]
            if inner and not names:
                parent, _, last = inner.rpartition("/")
                near = obstore.list_with_delimiter(self._store, f"{parent}/" if parent else None)
                names = [str(each["path"]) for each in near["objects"]]
                names = [name for name in names if name.rpartition("/")[2] == last]
        return sorted(_whole(names))

    def copy(self, inner: str, path: Path) -> None:
        """Copies the file or folder `inner` to `path`. Raises FileNotFoundError for one that is not there,
        and OSError where `path` cannot be written.
        """
        names = self.names(inner)
        if not names:
            raise FileNotFoundError(inner)
        if names == [inner]:
            self._download(inner, path)
            return
        lost = set()
        for name in names:
            relative = name[len(inner) + 1 :] if inner else name
            if not self._download(name, path / _safe(relative)) and (part := _CHECKPOINT.fullmatch(name)):
                lost.add(part[1])  # the training has removed it meanwhile
        for name in names:
            if (part := _CHECKPOINT.fullmatch(name)) and part[1] in lost:
                (path / _safe(name[len(inner) + 1 :] if inner else name)).unlink(missing_ok=True)

    def _download(self, name: str, path: Path) -> bool:
        """Returns whether the object was there."""
        import obstore

        path.parent.mkdir(parents=True, exist_ok=True)
        with _understood(self.url):
            try:
                content = obstore.get(self._store, name)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return False
        with path.open("wb") as file, _understood(self.url):
            for chunk in content.stream(min_chunk_size=8 << 20):
                file.write(bytes(chunk))
        return True


def copied(url: str, storage: Mapping[str, Any], run: str, inner: str, target: str) -> Path:
    """Copies the file or folder `inner` of the model directory `url` to `target`. Returns the path. Raises
    ConflictError where it is not there, BackendError where it cannot be written.
    """
    files = BucketFiles(url, storage)
    written = copied_files.target(target, Path(inner).name or run)
    names = files.names(inner)
    if not names:
        there = {name.partition("/")[0] for name in files.names("")}
        raise copied_files.nothing_at(inner, sorted(there) if inner else [])
    with copied_files.made(written) as temporary:
        files.copy(inner, temporary)
    return written


class LogsMirror:
    """A local copy of the bucket's TensorBoard files, which a thread renews."""

    def __init__(self, files: BucketFiles, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._over = threading.Event()
        self.renew()
        threading.Thread(target=self._work, name="logs", daemon=True).start()

    def close(self) -> None:
        """Ends the thread."""
        self._over.set()

    def renew(self) -> None:
        """Copies what has grown."""
        for name in self._files.names(_LOGS):
            self._files.copy(name, self._folder / _safe(name))

    def _work(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                self.renew()
            except (BackendError, OSError):
                continue  # the server may be gone for a while


def _whole(names: list[str]) -> list[str]:
    """Leaves out the data of checkpoints whose index is not there."""
    present = set(names)
    return [
        name
        for name in names
        if (part := _CHECKPOINT.fullmatch(name)) is None or f"{part[1]}.index" in present
    ]


def _safe(name: str) -> PurePosixPath:
    """Raises BackendError for an object whose name would lead out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise BackendError(f"the bucket has an object that is not copied: {name[:200]!r}")
    return path


@contextlib.contextmanager
def _understood(url: str) -> Iterator[None]:
    """Turns the library's errors into BackendError."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        code = _CODE.search(str(error))
        reason = code[1] if code else str(error).splitlines()[0][:200]
        if "169.254.169.254" in str(error):
            reason = "there are no credentials"
        raise BackendError(f"{url} cannot be read: {reason}", _CREDENTIALS) from None
