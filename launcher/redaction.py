"""Secrets are never printed: whoever reads one says so here, and every error and every line passes here."""

from __future__ import annotations

import base64
import re
from typing import Final

MARK: Final = "[redacted]"

_SHORTEST: Final = 6
"""Characters. A shorter one would take words out of sentences that have nothing to do with it."""

_USERINFO: Final = re.compile(r"(?<=://)[^/?#\s'\"<>]*@")
_SCHEMES: Final = re.compile(r"\b(Bearer|Basic)(\s+)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)
_WEB_TOKEN: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?")
"""A JSON Web Token, which service accounts and OpenID Connect have: its beginning is `{"` in base64."""

_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def keep_secret(*values: str) -> None:
    """From now on none of these is printed, nor their single lines, nor what base64 makes of them."""
    global _pattern
    found = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
    if not found <= _secrets:
        _secrets.update(found)
        # The longest first: one may be the beginning of another.
        ordered = sorted(_secrets, key=lambda secret: (-len(secret), secret))
        _pattern = re.compile("|".join(map(re.escape, ordered)))


def _forms(value: str) -> list[str]:
    lines = [line.strip() for line in value.splitlines()]
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    return [value.strip(), encoded, encoded.rstrip("="), *lines]


def redacted(text: str) -> str:
    """The text without the secrets that were read. All else is left as it is."""
    return text if _pattern is None else _pattern.sub(MARK, text)


def redacted_message(text: str) -> str:
    """For our own messages, which may quote what others have said: also without what looks like a secret,
    the user and password of a URL, and what stands behind `Bearer` or `Basic`.
    """
    text = redacted(text)
    text = _USERINFO.sub(f"{MARK}@", text)
    text = _SCHEMES.sub(lambda found: f"{found[1]}{found[2]}{MARK}", text)
    return _WEB_TOKEN.sub(MARK, text)
