"""Requests and streams to one API server, as far as this backend needs them."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from launcher.backends.kubernetes.api_server.api_errors import (
    ApiError,
    Request,
    UnreachableError,
    refusal,
    unreachable,
)
from launcher.backends.kubernetes.api_server.connection import Connection
from launcher.backends.kubernetes.api_server.parallel import AT_A_TIME, together
from launcher.backends.kubernetes.api_server.resources import (
    api_of,
    kind_of,
    path_of,
    plural_of,
    resource,
    segment,
)
from launcher.backends.kubernetes.api_server.streams import Stream
from launcher.backends.kubernetes.api_server.transport import Answer
from launcher.backends.patience import TELL_SECONDS, Patience
from launcher.json_in_yaml import quoted

FIELD_MANAGER: Final = "tf-launcher"
"""The field manager of server-side apply."""

ANSWER_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 30.0
"""How long a request is repeated while the server says that it is busy; one that has answered before gets all
the time of the command.
"""

RENEWAL_SECONDS: Final = 15.0
"""How long a request is repeated where a token that was good is refused: its file may be written anew."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0

SILENCE_SECONDS: Final = 100.0
"""A watch gets a bookmark about every minute; after so long without one its connection is given up."""

USUAL_SKEW_SECONDS: Final = 10.0
"""A difference up to this is ignored: an answer's Date has whole seconds, and the answer takes time."""

_LARGEST_SKEW_SECONDS: Final = 3e8
"""Ten years: a larger difference is ignored."""

_SECONDS: Final = re.compile(r"[0-9]{1,6}")
"""Of Retry-After."""

PAGE: Final = 500
"""Objects in one answer, as kubectl asks for them."""

_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Object = dict[str, Any]


@dataclass(frozen=True)
class Applied:
    """The server's answer to an apply. `created`: the object did not exist before. `warnings` are the
    server's.
    """

    body: Object
    created: bool
    warnings: tuple[str, ...]


class Client:
    """One API server. Every method raises ApiError when it refuses, and UnreachableError when there is no
    answer; both are BackendErrors for the user.
    """

    def __init__(self, connection: Connection, patience: Patience | None = None) -> None:
        self.connection = connection
        self.patience = patience or Patience()
        self._version: Object | None = None
        self.ahead = 0.0
        """Seconds by which this machine's clock is ahead of the server's; 0 if the difference is small."""

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object; None when there is none."""
        try:
            request = Request("get", resource(kind), namespace, name)
            return self._object(self._ask(request, path_of(kind, namespace, name))[1])
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def sign_in(self) -> None:
        """Loads the credentials. Raises BackendError."""
        self._credentials()

    def warm_up(self) -> None:
        """Opens the connections for requests that are made at the same time. Errors are ignored here: the
        requests will show them.
        """
        with contextlib.suppress(Exception):
            together([self.version] * AT_A_TIME)

    def version(self) -> Object:
        """The server's version, as it was when first asked."""
        if self._version is None:
            self._version = self._ask(Request("get", "the version"), "version")[1]
        return self._version

    def knows(self, kind: str, part: str = "") -> bool:
        """Whether the server has the kind at all, and this subresource of it."""
        api = api_of(kind)
        try:
            resource_list = self._ask(Request("get", f"the API {api}"), api)[1]
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        name = f"{plural_of(kind)}/{part}" if part else plural_of(kind)
        return any(each.get("name") == name for each in resource_list.get("resources") or ())

    def namespace(self, name: str) -> Object:
        """The namespace itself."""
        return self._ask(Request("get", "namespaces", None, name), f"api/v1/namespaces/{segment(name)}")[1]

    def allowed(
        self,
        namespace: str,
        verb: str,
        group: str,
        resource: str,
        them: Mapping[str, Any] | None = None,
    ) -> bool:
        """Whether the user has this right in a namespace ("": in all). `resource` may be a subresource, such
        as `pods/log`. `them` is another one's `user` and `groups`, of whom only administrators may ask.
        """
        plural, _, part = resource.partition("/")
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural}
        asked = {"resourceAttributes": attributes | ({"subresource": part} if part else {})}
        reviews = "selfsubjectaccessreviews" if them is None else "subjectaccessreviews"
        review = {"spec": {**asked, **(them or {})}}
        _, answer, _ = self._ask(
            Request("create", reviews),
            f"apis/authorization.k8s.io/v1/{reviews}",
            method="POST",
            body=json.dumps(review),
        )
        return bool((answer.get("status") or {}).get("allowed"))

    def list(
        self,
        kind: str,
        namespace: str | None,
        labels: str = "",
        fields: str = "",
        *,
        metadata_only: bool = False,
        repeated: bool = True,
    ) -> tuple[list[Object], str]:
        """The objects in a namespace (None: in all), and the resourceVersion from which to watch them.
        `repeated`: a request that fails is sent again, as long as the command's patience lasts.
        """
        query = _selecting(labels, fields) | {"limit": str(PAGE)}
        request = Request("list", resource(kind), namespace)
        objects: list[Object] = []
        while True:
            _, page, _ = self._ask(
                request,
                path_of(kind, namespace),
                query,
                accept=_METADATA_ONLY if metadata_only else "application/json",
                repeated=repeated,
            )
            items, metadata = page.get("items"), page.get("metadata")
            if not isinstance(items, list | None) or not isinstance(metadata, dict):
                raise self._no_server("a list that is none of Kubernetes'")
            objects += map(self._object, items or ())
            following = metadata.get("continue")
            if not following:
                return objects, str(metadata.get("resourceVersion") or "")
            query["continue"] = str(following)

    def create(self, item: Mapping[str, Any]) -> Object:
        """Makes an object whose name is its own; unknown fields are refused."""
        kind, namespace = kind_of(item), item["metadata"]["namespace"]
        return self._ask(
            Request("create", resource(kind), namespace),
            path_of(kind, namespace),
            {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"},
            method="POST",
            body=json.dumps(item),
        )[1]

    def apply(self, item: Mapping[str, Any], *, dry_run: bool = False) -> Applied:
        """Server-side apply: creates the object, or changes the fields that the launcher manages. Unknown
        fields are refused.
        """
        metadata = item["metadata"]
        kind, namespace, name = kind_of(item), metadata["namespace"], metadata["name"]
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        status, body, warnings = self._ask(
            Request("patch", resource(kind), namespace, name),
            path_of(kind, namespace, name),
            query,
            method="PATCH",
            # The server reads the body as YAML, in which some JSON texts mean something else.
            body=quoted(item),
            content_type="application/apply-patch+yaml",
        )
        return Applied(body, status == 201, warnings)

    def merge(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> Object:
        """JSON merge patch, of the object or of its subresource `part`."""
        return self._ask(
            Request("patch", f"{resource(kind)}/{part}" if part else resource(kind), namespace, name),
            path_of(kind, namespace, name, part),
            {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"},
            method="PATCH",
            body=json.dumps(patch),
            content_type="application/merge-patch+json",
        )[1]

    def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Deletes the object with this uid; the garbage collector deletes what it owns. It is no error if the
        object is gone, or another one has its name.
        """
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            self._ask(
                Request("delete", resource(kind), namespace, name),
                path_of(kind, namespace, name),
                method="DELETE",
                body=json.dumps(options),
            )
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def delete_all(
        self, kind: str, namespace: str, labels: str, fields: str = "", *, grace: int | None = None
    ) -> None:
        """Deletes the objects with these labels and fields. Pods get so many seconds of grace; None means
        their own grace period.
        """
        self._ask(
            Request("deletecollection", resource(kind), namespace),
            path_of(kind, namespace),
            _selecting(labels, fields),
            method="DELETE",
            body=json.dumps({} if grace is None else {"gracePeriodSeconds": grace}),
        )

    def watch(self, kind: str, namespace: str, version: str, labels: str = "", fields: str = "") -> Stream:
        """The changes since a resourceVersion, a JSON document a line. The server ends it after minutes."""
        query = _selecting(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            # So that not all watches end at once.
            "timeoutSeconds": str(random.randint(240, 300)),  # noqa: S311 - no secret
        }
        return self._stream(
            Request("watch", resource(kind), namespace), path_of(kind, namespace), query, SILENCE_SECONDS
        )

    def log(self, namespace: str, pod: str, query: Mapping[str, str], *, silence: float | None) -> Stream:
        """A pod's log. `silence` is how many seconds may pass without data; None means no limit."""
        return self._stream(
            Request("get", "pods/log", namespace, pod),
            path_of("Pod", namespace, pod, "log"),
            query,
            silence,
        )

    def unreachable(self, error: BaseException) -> UnreachableError:
        """The error for an exception of the connection."""
        connection = self.connection
        proxy = "" if connection.proxy is None else str(connection.proxy)
        return unreachable(error, connection.host, connection.origin, proxy)

    def _stream(self, request: Request, path: str, query: Mapping[str, str], silence: float | None) -> Stream:
        signed = {"Accept": "application/json, */*", **self._credentials()}

        def exchange() -> Answer:
            response = self._send("GET", path, query, None, signed, silence)
            # 204: no node was found for the pod, so there is no log.
            if response.status not in (200, 204):
                raise self._refusal(request, response)
            return response

        return Stream(self.patience.call(exchange, self._called), self.unreachable)

    def _ask(
        self,
        request: Request,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: str | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        repeated: bool = True,
    ) -> tuple[int, Object, tuple[str, ...]]:
        """Sends a request. Each may be repeated, since the second time changes nothing more, or is
        refused.
        """

        def exchange() -> tuple[int, Object, tuple[str, ...]]:
            response = self._send(method, path, query or {}, body, headers, ANSWER_SECONDS)
            self.ahead = _ahead(response.header("Date"))
            if response.status < 300:
                return response.status, self._document(response), _warnings(response)
            raise self._refusal(request, response)

        began = time.monotonic()
        first, delay = True, _FIRST_PAUSE
        with self.patience.waiting():
            while True:
                headers = {"Accept": accept, "Content-Type": content_type, **self._credentials()}
                try:
                    answer = self.patience.call(exchange, self._called)
                except (ApiError, UnreachableError) as error:
                    at_once = first and isinstance(error, UnreachableError)
                    pause = 0.0 if at_once else max(delay, getattr(error, "retry_after", None) or 0.0)
                    left = self._repeatable(error, time.monotonic() - began, first=first)
                    if not repeated or pause > left:
                        raise
                    if time.monotonic() - began >= TELL_SECONDS:
                        self.patience.tell_repeated(error.message)
                    time.sleep(pause)
                    first, delay = False, delay if at_once else min(2 * delay, _LONGEST_PAUSE)
                else:
                    self.patience.note_answer()
                    return answer

    def _repeatable(self, error: ApiError | UnreachableError, taken: float, *, first: bool) -> float:
        """For how many seconds from now a request that has failed so is repeated, `taken` seconds after it
        was first sent; less than 0 if not at all.
        """
        left, answered = self.patience.left(), self.patience.answered
        if isinstance(error, ApiError):
            if error.status == 401 and answered:
                return RENEWAL_SECONDS - taken
            if not error.passing:
                return -1.0
            if left is None or not answered:
                return min(PATIENCE_SECONDS - taken, PATIENCE_SECONDS if left is None else left)
            return left
        if left is not None and answered and not error.foreign:
            return left
        # The server may have closed an idle connection, as when it was restarted.
        return 0.0 if first and not error.refused else -1.0

    @property
    def _called(self) -> str:
        proxy = self.connection.proxy
        return f"the API server {self.connection.host}" + ("" if proxy is None else f", through {proxy},")

    def _credentials(self) -> Mapping[str, str]:
        login = self.connection.login
        if not login:
            return self.connection.credentials(None)
        seconds = self.patience.left()
        return self.patience.call(
            partial(self.connection.credentials, seconds), f"the {login}", limited=False
        )

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: str | None,
        headers: Mapping[str, str],
        silence: float | None,
    ) -> Answer:
        url = f"{self.connection.host}/{path}" + (f"?{urlencode(query)}" if query else "")
        sent = {**headers, "User-Agent": "tf-launcher"}
        try:
            return self.connection.transport.request(
                method, url, None if body is None else body.encode(), sent, silence
            )
        except OSError as error:
            raise self.unreachable(error) from error

    def _read(self, response: Answer) -> bytes:
        try:
            return response.read()
        except OSError as error:
            raise self.unreachable(error) from error

    def _document(self, response: Answer) -> Object:
        try:
            document = json.loads(self._read(response))
        except (ValueError, RecursionError) as error:
            raise self._no_server("no JSON") from error
        if not isinstance(document, dict):
            raise self._no_server("JSON that is no object")
        return document

    def _object(self, item: object) -> Object:
        """One of Kubernetes'."""
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if not isinstance(metadata, dict) or not isinstance(item, dict):
            raise self._no_server("an object without metadata")
        return item

    def _no_server(self, sent: str) -> UnreachableError:
        return UnreachableError(
            f"what answers at {self.connection.host} is no API server: it sends {sent}",
            f"Check the server's address in {self.connection.origin}.",
            refused=True,
            foreign=True,
        )

    def _refusal(self, request: Request, response: Answer) -> ApiError:
        content = self._read(response)
        if response.status == 401:
            self.connection.renew()
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            # Something in between has answered, such as a proxy.
            body = {"message": content.decode(errors="replace")}
        if not isinstance(body, dict):
            body = {"message": str(body)}
        after = response.header("Retry-After")
        return refusal(
            request,
            response.status,
            body,
            self.connection.host,
            self.connection.origin,
            float(after) if _SECONDS.fullmatch(after) else None,
        )


def _selecting(labels: str, fields: str = "") -> dict[str, str]:
    both = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in both.items() if value}


def _ahead(date: str) -> float:
    """Seconds by which this machine's clock is ahead of an answer's Date; 0.0 if the difference is usual."""
    try:
        seconds = time.time() - parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, LookupError, OverflowError):
        return 0.0
    return seconds if USUAL_SKEW_SECONDS < abs(seconds) < _LARGEST_SKEW_SECONDS else 0.0


def _warnings(response: Answer) -> tuple[str, ...]:
    """Of the header `Warning: 299 - "text"`, RFC 7234 5.5, of which there may be several."""
    texts = []
    for header in response.headers("Warning"):
        _, _, text = header.partition('"')
        texts.append(text.rpartition('"')[0].replace('\\"', '"'))
    return tuple(dict.fromkeys(filter(None, texts)))
