"""Objects below an `s3://bucket/path`, read and written by obstore.

Endpoint, region and credentials come from the environment, by the names of AWS' own tools: AWS_ENDPOINT_URL,
AWS_REGION, AWS_ACCESS_KEY_ID and so on, or the pod's identity. None of their values is ever printed.

No TensorFlow here: the supervisor process renews the lease by this module.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from worker.contract.environment import BUCKET_SCHEME, Env
from worker.contract.exit_codes import ExitCode
from worker.failures import Failure, program_error

Value = TypeVar("Value")

_PART_BYTES = 8 << 20
"""Size of an upload's parts, of which at most `_PARALLEL` are in memory."""
_MOST_PARTS = 9_000
"""S3 takes 10,000 parts of an upload."""
_PARALLEL = 4
_CHUNK_BYTES = 8 << 20
"""A download is one stream: ranges of it, in several threads, were slower on a busy machine of two cores."""

_RETRY_SECONDS = 10.0
_IMPATIENT_RETRY_SECONDS = 2.0
"""For a bucket without patience."""
_UPLOAD_RETRY_SECONDS = 75.0
"""obstore repeats a part of an upload for this long; after that the whole upload begins again. So a server
that is gone for a minute costs no part that it has.
"""
_PAUSE_SECONDS = 2.0
_READ_SECONDS = 60.0
"""A connection on which nothing arrives for this long is broken."""
_PART_SECONDS = 600.0
"""The longest time that a request may take: a part on a slow line."""

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_STATUS = re.compile(r"status code: (\d{3})([\w ]*)")
_BRIEF = (
    ("169.254.169.254", "there are no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"),
    ("onnection refused", "connection refused"),
    ("ConnectionRefused", "connection refused"),
    ("ConnectionReset", "connection reset"),
    ("ConnectError", "no connection"),
    ("IncompleteMessage", "the connection broke"),
    ("dns error", "its name is not known"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
    ("certificate", "its certificate is not trusted"),
)
_NOT_TEMPORARY = ("169.254.169.254", "certificate")
_TEMPORARY_STATUS = ("408", "425", "429")


class BucketError(OSError):
    """An operation failed. `is_temporary` says whether a retry may help."""

    def __init__(self, message: str, is_temporary: bool) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary

    def as_failure(self) -> Failure:
        """Returns the Failure that ends a task with this error."""
        return Failure(str(self), ExitCode.RETRYABLE if self.is_temporary else ExitCode.PROGRAM_ERROR)


class ChangedError(OSError):
    """The object is not the one that was expected: another process has written it."""


@dataclass(frozen=True)
class Item:
    """An object. `name` is relative to the bucket's path; `size` is in bytes, `modified` in seconds since the
    epoch.
    """

    name: str
    size: int
    e_tag: str
    modified: float


def is_bucket(url: str) -> bool:
    """Returns whether this module opens the URL."""
    return url.startswith(f"{BUCKET_SCHEME}://")


def check_library(url: str) -> None:
    """Raises Failure where obstore is not installed, which is 16 MB and too large to travel with a run."""
    if importlib.util.find_spec("obstore") is None:
        where = "of this machine" if Env.LOCAL in os.environ else "of the image"
        raise program_error(
            f"{sys.executable} {where} lacks obstore, which reads and writes {url}: install it there (pip "
            "install obstore), or use an image that has it, such as the launcher's own (tf-launcher-worker)"
        )


class Bucket:
    """Objects below `url`.

    An operation that fails temporarily is tried again for `patience` seconds. `notice` is told, once for each
    outage; `alive` is called while it waits. All methods raise BucketError.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = 0.0,
        notice: Callable[[str], None] = lambda message: None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience = patience
        self._notice = notice
        self.alive = alive
        self._stores: dict[float, Any] = {}

    def with_alive(self, alive: Callable[[], None]) -> Bucket:
        """Returns the same bucket for another thread."""
        return Bucket(self.url, patience=self._patience, notice=self._notice, alive=alive)

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Returns content and ETag, None for a missing object."""

        def read() -> tuple[bytes, str]:
            answer = _obstore().get(self._store(), name)
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

        try:
            return self._tried(f"reading {name}", read)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Writes the whole object or nothing."""
        self._tried(f"writing {name}", lambda: _obstore().put(self._store(), name, content))

    def replace(self, name: str, content: bytes, e_tag: str | None) -> None:
        """Writes the object if its ETag is the given one, or if `e_tag` is None and there is none. Raises
        ChangedError otherwise.
        """
        mode: Any = "create" if e_tag is None else {"e_tag": e_tag}
        self._tried(f"writing {name}", lambda: _obstore().put(self._store(), name, content, mode=mode))

    def upload(self, name: str, path: Path) -> None:
        """Writes the file as one object, which appears when it is complete."""
        part = max(_PART_BYTES, path.stat().st_size // _MOST_PARTS)
        store = self._store(_UPLOAD_RETRY_SECONDS)
        self._tried(
            f"uploading {name}",
            lambda: _obstore().put(store, name, path, chunk_size=part, max_concurrency=_PARALLEL),
        )

    def download(self, item: Item, path: Path) -> None:
        """Writes the object to the file; a failure leaves none. Raises FileNotFoundError where the object
        was removed, and ChangedError where it was written anew.
        """
        path.parent.mkdir(parents=True, exist_ok=True)

        def fetch() -> None:
            answer = _obstore().get(self._store(), item.name, options={"if_match": item.e_tag})
            with path.open("wb") as file:
                for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                    file.write(chunk)
                    self.alive()

        try:
            self._tried(f"downloading {item.name}", fetch)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def items(self, folder: str = "") -> list[Item]:
        """Returns all objects below `folder`, sorted by name."""

        def items() -> list[Item]:
            pages = _obstore().list(self._store(), f"{folder}/" if folder else None)
            listed = [_item(each) for page in pages for each in page if each["path"] != folder]
            return sorted(listed, key=lambda item: item.name)

        return self._tried(f"listing {folder or 'it'}", items)

    def children(self, folder: str) -> tuple[list[Item], list[str]]:
        """Returns the objects in `folder`, and the names of the folders in it."""

        def children() -> tuple[list[Item], list[str]]:
            listing = _obstore().list_with_delimiter(self._store(), f"{folder}/" if folder else None)
            # Some servers list a folder in itself.
            items = [_item(each) for each in listing["objects"] if each["path"] != folder]
            return items, [str(each) for each in listing["common_prefixes"]]

        return self._tried(f"listing {folder or 'it'}", children)

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects, in this order. A missing one is no error."""
        for name in names:
            try:
                self._tried(f"removing {name}", partial(_obstore().delete, self._store(), name))
            except FileNotFoundError:
                pass

    def _store(self, retry_seconds: float = _RETRY_SECONDS) -> Any:
        if self._patience == 0.0:
            retry_seconds = _IMPATIENT_RETRY_SECONDS
        if retry_seconds not in self._stores:
            self._stores[retry_seconds] = _open(self.url, retry_seconds)
        return self._stores[retry_seconds]

    def _tried(self, operation: str, act: Callable[[], Value]) -> Value:
        since: float | None = None
        while True:
            began = time.monotonic()
            try:
                result = act()
            except (OSError, _obstore().exceptions.BaseError) as error:
                problem = self._problem(operation, error)
                since = began if since is None else since
                waited = time.monotonic() - since
                if not problem.is_temporary or waited >= self._patience:
                    raise problem from None
                if since == began:
                    self._notice(f"{problem}; trying again for up to {self._patience:.0f} s")
                self._pause()
            else:
                if since is not None:
                    gone = time.monotonic() - since
                    self._notice(f"{self.url} answers again, after {gone:.0f} s: {operation} is done")
                return result

    def _pause(self) -> None:
        until = time.monotonic() + _PAUSE_SECONDS
        while time.monotonic() < until:
            self.alive()
            time.sleep(0.25)

    def _problem(self, operation: str, error: Exception) -> BucketError:
        """Raises errors that are no problem of the store."""
        obstore = _obstore()
        text = str(error)
        missing = isinstance(error, FileNotFoundError)
        if isinstance(error, (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError)):
            raise ChangedError(f"{self.url}: {operation}: another process has written it") from None
        if (missing and "NoSuchBucket" not in text) or not (
            missing or isinstance(error, obstore.exceptions.BaseError)
        ):
            raise error
        return BucketError(f"{self.url}: {operation} failed: {_reason(text)}", _is_temporary(text))


def _open(url: str, retry_seconds: float) -> Any:
    from obstore.store import S3Store

    bucket, _, prefix = url.partition("://")[2].partition("/")
    options: Any = {
        "connect_timeout": timedelta(seconds=5),
        "timeout": timedelta(seconds=_PART_SECONDS),
        "read_timeout": timedelta(seconds=_READ_SECONDS),
    }
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    proxy = os.environ.get("HTTP_PROXY") if Env.LOCAL in os.environ else None
    if proxy and urlsplit(endpoint).hostname in ("localhost", "127.0.0.1", "::1"):
        # The run has a network of its own, with another loopback than the machine's. The proxy leads there.
        options["proxy_url"] = proxy
    retries: Any = {
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=retry_seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=0.2),
            "max_backoff": timedelta(seconds=3),
            "base": 2,
        },
    }
    try:
        return S3Store(bucket, prefix=prefix or None, client_options=options, retry_config=retries)
    except ValueError:
        # obstore before 0.12 (that of Python 3.9) does not know it.
        del options["read_timeout"]
        return S3Store(bucket, prefix=prefix or None, client_options=options, retry_config=retries)


def _obstore() -> Any:
    import obstore
    import obstore.exceptions

    return obstore


def _item(meta: Any) -> Item:
    return Item(meta["path"], meta["size"], meta["e_tag"] or "", meta["last_modified"].timestamp())


def _reason(text: str) -> str:
    """Returns what the server says, or how the connection failed. The rest of obstore's text is left out: it
    repeats the request and the library's own structures.
    """
    if code := _CODE.search(text):
        message = _MESSAGE.search(text)
        return f"{code[1]}: {message[1].rstrip('.')}" if message else code[1]
    for part, brief in _BRIEF:
        if part in text:
            return brief
    if status := _STATUS.search(text):
        return f"{status[1]}{status[2]}".strip()
    return text.splitlines()[0][:200] if text else "no reason given"


def _is_temporary(text: str) -> bool:
    if any(part in text for part in _NOT_TEMPORARY):
        return False
    status = _STATUS.search(text)
    if status is None or status[1] in _TEMPORARY_STATUS or status[1].startswith("5"):
        return True
    code = _CODE.search(text)
    return code is not None and code[1] in ("RequestTimeout", "SlowDown")
