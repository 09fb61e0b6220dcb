"""An error of the API server, or no answer -> one message: the request, the answer, what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from launcher.backends.kubernetes.api_server.transport import ProxyFailure
from launcher.errors import BackendError

_MAX_WORDS: Final = 500
"""Characters of the server's message that are shown. It quotes a whole pod template if one field is wrong."""

_FORBIDDEN: Final = re.compile(r'User "(?P<user>[^"]*)" cannot \w+ resource "(?P<resource>[^"]*)"')


_PROXY_WORDS: Final = {
    "refused": "nobody answers there, connection refused",
    "resolve": "its name does not resolve",
    "timed out": "it does not answer, timed out",
}
_TERMINATING: Final = re.compile(r"new content in namespace (\S+) because it is being terminated")
_ADMISSION: Final = ("denied the request", "denied request", "failed calling webhook")
"""The messages of a webhook that refuses, a ValidatingAdmissionPolicy, and a webhook that does not answer."""


@dataclass(frozen=True)
class Request:
    """The request, in Kubernetes' words: `patch jobs mnist-chief in namespace default`."""

    verb: str
    resource: str
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        text = f"{self.verb} {self.resource}"
        if self.name:
            text += f" {self.name}"
        return f"{text} in namespace {self.namespace}" if self.namespace else text


class ApiError(BackendError):
    """The API server's answer was an error. `words` are the server's message; `retry_after` is in seconds, if
    the server has given it.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        status: int,
        words: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.words = words
        self.retry_after = retry_after

    @property
    def no_right(self) -> bool:
        """Whether the user lacks a right, and it is not a quota or a policy that refuses."""
        return self.status == 403 and _FORBIDDEN.search(self.words) is not None

    @property
    def over_quota(self) -> bool:
        """Whether the request exceeds a quota."""
        return self.status == 403 and "exceeded quota" in self.words

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status == 429 or 500 <= self.status < 600


class UnreachableError(BackendError):
    """There was no answer. `refused`: nothing listens there, so that trying again at once is useless.
    `foreign`: what answers is no API server.
    """

    def __init__(self, message: str, hint: str = "", *, refused: bool = False, foreign: bool = False) -> None:
        super().__init__(message, hint)
        self.refused = refused
        self.foreign = foreign


def refusal(
    request: Request, status: int, body: Mapping[str, Any], host: str, origin: str, retry_after: float | None
) -> ApiError:
    """The error for an answer with this HTTP status and `Status` object."""
    words = shortened(str(body.get("message") or body.get("reason") or "no reason given"))
    message, hint = _explained(request, status, body, words, host, origin)
    return ApiError(message, hint, status=status, words=words, retry_after=retry_after)


def shortened(words: str) -> str:
    """The text, shortened in the middle: the important parts are at its ends."""
    words = words.strip()
    half = _MAX_WORDS // 2
    return words if len(words) <= _MAX_WORDS else f"{words[:half]} ... {words[-half:]}"


def _explained(
    request: Request, status: int, body: Mapping[str, Any], words: str, host: str, origin: str
) -> tuple[str, str]:
    raw_details = body.get("details")
    details = raw_details if isinstance(raw_details, dict) else {}
    if status == 401:
        return (
            f"the API server {host} does not know who you are: {words}",
            f"The credentials of {origin} have expired or are wrong: log in again, or take another context.",
        )
    if status == 403 and (match := _FORBIDDEN.search(words)):
        where = f"-n {request.namespace}" if request.namespace else "-A"
        question = f"kubectl auth can-i {request.verb} {request.resource} {where}"
        space = f" in namespace {request.namespace}" if request.namespace else " in all namespaces"
        return (
            f"{match['user']} may not {request.verb} {request.resource}{space}",
            f"Ask for a Role that allows it; `{question}` tells whether you have it.",
        )
    if status == 403 and "exceeded quota" in words:
        return (
            f"a quota forbids to {request}: {words}",
            "`kubectl describe quota` shows what is left; ask for less, or delete a finished run.",
        )
    if status == 404 and details.get("kind") == "namespaces":
        name = details.get("name") or request.namespace
        return (
            f"there is no namespace {name} in the cluster {host}",
            f"Create it with `kubectl create namespace {name}`, or name another one in metadata.namespace.",
        )
    if match := _TERMINATING.search(words):
        return (
            f"namespace {match[1]} of the cluster {host} is being deleted: nothing new can be made in it",
            "Name another one in metadata.namespace, or wait until it is gone and create it again.",
        )
    if any(sign in words for sign in _ADMISSION):
        return (
            f"the cluster's admission control refused to {request}: {words}",
            "The cluster's policy forbids it. Change what it names, or ask the cluster's administrator.",
        )
    if status in (400, 403, 422):
        return (
            f"the cluster refused to {request}: {words}",
            "Change the field that it names; podTemplate and volumes are passed on as they were written.",
        )
    if status == 429 or 500 <= status < 600:
        return f"the API server {host} cannot {request} now ({status}): {words}", "Try again in a while."
    return f"the API server {host} answered {status} when asked to {request}: {words}", ""


def not_understood(error: BaseException, host: str) -> BackendError:
    """The error for an answer that is JSON, and not what Kubernetes answers."""
    message = shortened(f"{type(error).__name__}: {error}")
    return BackendError(
        f"what the API server {host} has sent is not as Kubernetes has it ({message})",
        "Check that it is Kubernetes 1.33 or newer. If it is, this is an error in the launcher: "
        "TF_LAUNCHER_DEBUG=1 shows where; please report it.",
    )


def unreachable(error: BaseException, host: str, origin: str, proxy: str = "") -> UnreachableError:
    """The error for an exception of the connection. `proxy` is the one on the way, "" for none."""
    text = str(error)
    lower = text.lower()
    if isinstance(error, ProxyFailure):
        why = next((words for sign, words in _PROXY_WORDS.items() if sign in lower), _last_words(text))
        return UnreachableError(
            f"{proxy} on the way to the API server {host}: {why}; the server itself was not reached",
            "Check the proxy's address, or name the server in NO_PROXY where it needs no proxy.",
            refused=True,
        )
    check = f"Check that the cluster runs, and that {origin} is the one you mean."
    if "timed out" in lower or "timeout" in lower:
        return UnreachableError(f"the API server {host} does not answer: timed out", check)
    if "certificate" in lower or "ssl" in lower:
        check = f"Check {origin}, and this machine's clock: certificates have a time."
        return UnreachableError(
            f"no secure connection to the API server {host}: {_last_words(text)}", check, refused=True
        )
    if "refused" in lower:
        return UnreachableError(
            f"nobody answers at the API server {host}: connection refused", check, refused=True
        )
    if any(sign in lower for sign in ("name or service", "resolve", "nodename", "name resolution")):
        return UnreachableError(f"the API server's name in {host} does not resolve", check, refused=True)
    return UnreachableError(f"the connection to the API server {host} broke: {_last_words(text)}", check)


def _last_words(text: str) -> str:
    """The exception that urllib3 has wrapped."""
    match = re.search(r"certificate verify failed: ([^()]*)", text)
    return shortened(match[1].strip() if match else text)
