"""JSON that YAML reads as the same value."""

from __future__ import annotations

import json
import re
from typing import Any, Final

# Characters that YAML does not allow unescaped, or reads as a line's end, although JSON does not escape them.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def quoted(value: Any) -> str:
    """Returns JSON that YAML reads as the same value, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=dict)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
