"""Addresses and paths of the cluster, turned into those of this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

_ADDRESS = re.compile(r"(?<![\w.-])[a-z0-9][a-z0-9.-]*:\d+(?!\d)")


_REST = re.compile(r"""/[^\s"'`:,;)\]}]*""")
"""What follows a mount's path in a text."""


class Translation:
    """`addresses` maps `host:port` to `host:port`, `mounts` a mountPath to a directory.

    An address is replaced wherever it stands. A path is replaced where it begins a word: after white
    space, a quote, a bracket or one of `= : , ;`, so in `--logs=/model/logs` and `PATH=/a:/model/bin`,
    but not in `gs://bucket/model`. The innermost mount wins. Below the mounts that are `shared`, what this
    machine has is left as it is: data that lie in /tmp are found.
    """

    def __init__(
        self, addresses: Mapping[str, str], mounts: Mapping[str, str], shared: Collection[str] = ()
    ) -> None:
        self._addresses = addresses
        self._shared = frozenset(shared)
        self._mounts = {path.rstrip("/") or "/": directory for path, directory in mounts.items()}

    def text(self, value: str) -> str:
        """An environment variable's value, or an argument."""
        if ":" in value and self._addresses:
            value = self._local_addresses(value)
        if "/" in value and self._mounts:
            # One pass: a directory of this machine may itself lie under a path that is mounted (/tmp).
            value = self._paths.sub(self._local_path, value)
        return value

    def _local_path(self, match: re.Match[str]) -> str:
        after = _REST.match(match.string, match.end())
        known = after is not None and self._is_here(match.group(), after.group())
        return match.group() if known else self._mounts[match.group()]

    def _is_here(self, mount: str, rest: str) -> bool:
        """Whether this machine has what is below a shared mount, by its first name, or what matches that."""
        first = rest.lstrip("/").partition("/")[0]
        try:
            return mount in self._shared and bool(first) and any(Path(mount).glob(first))
        except (OSError, ValueError):  # no pattern, or no name
            return False

    def path(self, value: str) -> str | None:
        """The directory for a path under a mount; None when it is under none."""
        value = value.rstrip("/") or "/"
        outer = value
        while outer not in self._mounts:
            parent = outer.rpartition("/")[0]
            if not parent:
                return None
            outer = parent
        if self._is_here(outer, value[len(outer) :]):
            return value
        return self._mounts[outer] + value[len(outer) :]

    def file(self, content: str) -> str:
        """A ConfigMap's file: addresses anywhere; paths only where a JSON string is one as a whole,
        so that a program's source is left alone.
        """
        content = self._local_addresses(content) if self._addresses else content
        if not content.lstrip().startswith(("{", "[")):
            return content
        try:
            document = json.loads(content)
        except ValueError:
            return content
        translated = self._json(document)
        return content if translated == document else json.dumps(translated, ensure_ascii=False)

    def _local_addresses(self, value: str) -> str:
        return _ADDRESS.sub(lambda match: self._addresses.get(match.group(), match.group()), value)

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            return (self.path(value) or value) if value.startswith("/") else value
        if isinstance(value, list):
            return [self._json(item) for item in value]
        if isinstance(value, dict):
            return {key: self._json(item) for key, item in value.items()}
        return value

    @cached_property
    def _paths(self) -> re.Pattern[str]:
        longest_first = sorted(self._mounts, key=len, reverse=True)
        paths = "|".join(re.escape(path) for path in longest_first)
        return re.compile(rf"""(?:(?<![^\s"'`=:,;(\[{{])|(?<=file://))(?:{paths})(?=[/\s"'`:,;)\]}}]|$)""")
