"""The addresses of servers and proxies, checked before anything is sent to them."""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from launcher.backends.kubernetes.api_server.kubeconfig import UnusableError
from launcher.redaction import keep_secret

_VARIABLES: Final = {
    "https": ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"),
    "http": ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"),
}


@dataclass(frozen=True)
class Address:
    """`url` has neither user nor password; `userinfo` is `user:password`, "" for none."""

    url: str
    scheme: str
    host: str
    port: int
    userinfo: str


@dataclass(frozen=True)
class Proxy:
    """A proxy between this machine and a server, and where it was configured."""

    address: Address
    origin: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that authenticate to the proxy."""
        userinfo = self.address.userinfo
        return {"proxy-authorization": basic(userinfo)} if userinfo else {}

    def __str__(self) -> str:
        return f"the proxy {self.address.url} ({self.origin})"


def basic(userinfo: str) -> str:
    """The value of an Authorization header for `user:password`."""
    header = base64.b64encode(userinfo.encode(errors="replace")).decode()
    keep_secret(userinfo, userinfo.partition(":")[2], header)
    return f"Basic {header}"


def server(text: str | None, origin: str) -> Address:
    """The API server's. Raises UnusableError."""
    if not text:
        raise UnusableError(origin, "its cluster has no server")
    return _checked(text, origin, "server", "https://api.example.com:6443")


def proxy_for(address: Address, url: str | None, origin: str) -> Proxy | None:
    """The proxy of the kubeconfig's `proxy-url`, else the environment's; None if there is none for this
    server.
    """
    if url:
        return Proxy(_proxy(url, origin, "proxy-url"), "proxy-url in the kubeconfig")
    for name in _VARIABLES[address.scheme]:
        if value := os.environ.get(name):
            if _is_bypassed(address, os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""):
                return None
            text = value if "://" in value else f"http://{value}"
            return Proxy(_proxy(text, "the environment", name), name)
    return None


def _proxy(text: str, origin: str, field: str) -> Address:
    if text.partition("://")[0].lower().startswith("socks"):
        reason = f"{field}: a SOCKS proxy, which the launcher does not speak to: expected http:// or https://"
        hint = "An HTTP proxy in front of it helps, or NO_PROXY where the server is reached without one."
        raise UnusableError(origin, reason, hint)
    return _checked(text, origin, field, "http://proxy.example.com:3128")


def _checked(text: str, origin: str, field: str, example: str) -> Address:
    """The message does not quote the URL: it may contain a password."""
    wrong = UnusableError(origin, f"{field}: expected a URL of http or https, such as {example}")
    # urlsplit itself would leave some of these out.
    if not text.isprintable() or any(each.isspace() for each in text):
        raise wrong
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname or ""
        host.encode("idna")  # as Python's HTTP client, which refuses some characters
        userinfo = _userinfo(parts)
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not host or port == 0 or parts.query or parts.fragment:
        raise wrong
    if not host.isascii() or any(each in host for each in '%\\^`{|}"<>'):
        raise wrong
    netloc, path = parts.netloc.rpartition("@")[2], quote(parts.path, safe="/%:@!$&'()*+,;=~")
    return Address(
        f"{parts.scheme}://{netloc}{path.rstrip('/')}",
        parts.scheme,
        host,
        port or (443 if parts.scheme == "https" else 80),
        userinfo,
    )


def _userinfo(parts: SplitResult) -> str:
    if "@" not in parts.netloc:
        return ""
    written = parts.netloc.rpartition("@")[0]
    user, _, password = written.partition(":")
    keep_secret(written, password, unquote(password))
    return f"{unquote(user)}:{unquote(password)}"


def _is_bypassed(address: Address, no_proxy: str) -> bool:
    """As curl has it, with networks as `10.0.0.0/8` besides."""
    for entry in filter(None, (each.strip().lower() for each in no_proxy.split(","))):
        name = entry.lstrip(".")
        if entry == "*" or address.host == name or address.host.endswith(f".{name}"):
            return True
        if f"{address.host}:{address.port}" == name or f"[{address.host}]:{address.port}" == name:
            return True
        try:
            if ipaddress.ip_address(address.host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False
