"""The types of single values in the file, each with its expected form."""

# Annotations are evaluated at definition: see `launcher.config.spec`.

import ipaddress
import re
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from launcher import object_names
from launcher.config import package_lines
from worker.contract.notebook_lines import NOTEBOOK


def _checked(predicate: Any, expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not predicate(value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a quantity, such as 2, 500m or 4Gi")
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if not object_names.is_quantity(text):
        raise ValueError("expected a quantity, such as 2, 500m or 4Gi")
    return text


def _text(value: str) -> str:
    # For the kernel, a NUL ends an argument and an environment string.
    if "\0" in value:
        raise ValueError("expected a string without a NUL character")
    return value


def _all_named(values: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    if not all(isinstance(value.get("name"), str) for value in values):
        raise ValueError("expected a list in which every entry has a name")
    return values


def _is_cidr(value: str) -> bool:
    try:
        return "/" in value and ipaddress.ip_network(value, strict=False) is not None
    except ValueError:
        return False


def _is_http_url(value: str) -> bool:
    if not re.fullmatch(r"https?://[A-Za-z0-9.\-\[\]:]+(/[^\s?#@]*)?", value):
        return False
    try:
        return bool(urlsplit(value).hostname) and urlsplit(value).port != 0
    except ValueError:  # brackets, or a port that is none
        return False


T = TypeVar("T")
Items = Annotated[tuple[T, ...], Strict(False)]
"""A list, in the file and in Python."""

Text = Annotated[str, AfterValidator(_text)]
Quantity = Annotated[str, BeforeValidator(_quantity, json_schema_input_type=int | float | str)]
Size = Annotated[
    Quantity,
    _checked(lambda size: re.match(r"\+?[0.]*[1-9]", size), "a size above 0, such as 10Gi"),
]
RunName = Annotated[
    str,
    _checked(
        object_names.is_dns_1035,
        "lower-case letters, digits and '-', beginning with a letter, ending with a letter or digit, "
        "at most 63 characters",
    ),
]
DnsLabel = Annotated[
    str, _checked(object_names.is_dns_1123, "lower-case letters, digits and '-', at most 63 characters")
]
ObjectName = Annotated[
    str,
    _checked(
        object_names.is_dns_subdomain, "lower-case letters, digits, '-' and '.', at most 253 characters"
    ),
]
LabelKey = Annotated[
    str, _checked(object_names.is_label_key, "a label key, such as team or example.com/team")
]
LabelValue = Annotated[
    str,
    _checked(
        object_names.is_label_value,
        "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    ),
]
EnvName = Annotated[
    str, _checked(object_names.is_env_name, "printable ASCII characters without '=', as in BATCH_SIZE")
]
MountPath = Annotated[
    Text, _checked(lambda p: p.startswith("/") and ":" not in p, "an absolute path without ':'")
]
# Without user and password: the file is printed, and lies in annotations.
HttpUrl = Annotated[
    Text,
    _checked(
        _is_http_url,
        "a URL without user, password and query, such as https://minio.example.com:9000",
    ),
]
Package = Annotated[Text, AfterValidator(package_lines.checked)]
ArchiveUrl = Annotated[
    Text,
    _checked(
        re.compile(r"(https?|s3|gs)://[A-Za-z0-9.\-\[\]:]+(/[^\s?#@]*)?/[^\s?#@/]+").fullmatch,
        "the URL of an archive, by https, s3 or gs, without user, password and query",
    ),
]
Sha256 = Annotated[
    str, _checked(re.compile(r"[0-9a-f]{64}").fullmatch, "64 hexadecimal digits in lower case")
]
Commit = Annotated[
    str,
    _checked(
        re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch,
        "a commit by its whole hash, as `git rev-parse` prints it",
    ),
]
# https://github.com/distribution/reference/blob/main/regexp.go
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"({_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}"
ImageName = Annotated[
    Text,
    _checked(
        re.compile(rf"({_HOST}/)?{_PART}(/{_PART})*(:\w[\w.-]{{0,127}})?(@{_DIGEST})?", re.ASCII).fullmatch,
        "an image's name, in lower case, such as registry.example.com/team/trainer:1.2",
    ),
]
FolderPath = Annotated[
    Text,
    _checked(
        lambda path: path and not path.startswith("/") and ".." not in path.split("/"),
        "the path of a folder inside, such as train",
    ),
]
CheckpointName = Annotated[
    str, _checked(re.compile(r"ckpt-[1-9]\d{0,8}").fullmatch, "the name of a checkpoint, such as ckpt-3")
]
ScriptPath = Annotated[
    Text,
    _checked(
        lambda path: path.endswith((".py", NOTEBOOK)),
        "the path of a Python script or a notebook, such as ./train.py",
    ),
]
Cidr = Annotated[str, _checked(_is_cidr, "a range of IP addresses, such as 10.0.0.0/8")]
Named = Annotated[Items[dict[str, Any]], AfterValidator(_all_named)]
Count = Annotated[int, Field(ge=0, le=100_000)]
Seconds = Annotated[int, Field(ge=1, le=2**31 - 1)]
