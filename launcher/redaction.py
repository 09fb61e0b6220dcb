"""Keeps secrets out of all output: code that reads a secret registers it here, and every error and every line
passes through here.
"""

from __future__ import annotations

import re
from typing import Final

MARK: Final = "[redacted]"

_SHORTEST: Final = 6
"""Characters. A shorter secret would remove unrelated words from sentences."""

_USERINFO: Final = re.compile(r"(?<=://)[^/?#\s'\"<>]*@")
_SCHEMES: Final = re.compile(r"\b(Bearer|Basic)(\s+)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)
_WEB_TOKEN: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?")
"""A JSON Web Token, as of service accounts and OpenID Connect: its first characters are `{"` in base64."""

_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def keep_secret(*values: str) -> None:
    """Removes these values from all later output, and also each of their lines and their base64 forms."""
    global _pattern
    forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
    if not forms <= _secrets:
        _secrets.update(forms)
        # The longest first: one may be the beginning of another.
        ordered = sorted(_secrets, key=lambda secret: (-len(secret), secret))
        _pattern = re.compile("|".join(map(re.escape, ordered)))


def _forms(value: str) -> list[str]:
    import base64  # no secret is kept in most commands

    lines = [line.strip() for line in value.splitlines()]
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    return [value.strip(), encoded, encoded.rstrip("="), *lines]


def redacted(text: str) -> str:
    """Returns the text without the secrets that were read. All else is unchanged."""
    return text if _pattern is None else _pattern.sub(MARK, text)


def redacted_message(text: str) -> str:
    """Redacts the launcher's own messages, which may quote other programs. It also removes text that looks
    like a secret, the user and password of a URL, and the value after `Bearer` or `Basic`.
    """
    text = redacted(text)
    text = _USERINFO.sub(f"{MARK}@", text)
    text = _SCHEMES.sub(lambda match: f"{match[1]}{match[2]}{MARK}", text)
    return _WEB_TOKEN.sub(MARK, text)
