"""Parses YAML text to plain values, each with its place in the text.

It uses YAML 1.2's core schema, so that `on`, `off`, `yes`, `no` and `1:30` are text and `0o10` is 8. It
refuses numbers that YAML 1.1 and 1.2 read differently (`010`), and duplicate keys, of which Kubernetes' own
tools read one or the other. Dates stay text. Anchors, aliases and `<<` work within limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from launcher.errors import Problem, SpecError

FieldPath = tuple[str | int, ...]

MAX_BYTES: Final = 1 << 20
"""A spec is stored in an annotation (256 KiB); a file over a megabyte is a mistake."""
MAX_VALUES: Final = 100_000
"""Values after aliases are followed: stops "billion laughs" at once."""
MAX_DEPTH: Final = 60
MAX_DIGITS: Final = 400
"""Digits of a number: no double holds more, and Python itself refuses to print 4,300 or more."""
_SHORT: Final = 2_000
"""Characters of a text that cannot nest deeply enough to exhaust the C stack."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# Values that PyYAML, which resolves by YAML 1.1, takes for text.
_ONLY_1_2 = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_AMBIGUOUS = re.compile(r"[-+]?0[0-9_]+|[-+]?[1-9][0-9]*_[0-9_]*|0b[01_]+")
_WORDS: Final = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAGS: Final = frozenset(
    ["map", "seq", "str", "null", "bool", "int", "float", "timestamp", "merge", "value", "!"]
)


@dataclass
class Document:
    """One YAML document: its value, the line and column (from 1) of every path, and its problems."""

    source: str
    value: Any = None
    places: dict[FieldPath, tuple[int, int]] = field(default_factory=dict)
    written: dict[FieldPath, str] = field(default_factory=dict)
    """The original text of each scalar."""
    overrides: dict[FieldPath, str] = field(default_factory=dict)
    """Paths whose values come from an override, and the name of the override."""
    problems: list[Problem] = field(default_factory=list)
    origins: dict[FieldPath, FieldPath] = field(default_factory=dict)
    """For a value that was converted from another: path in the value -> path in the text."""

    def place(self, path: FieldPath) -> tuple[int, int]:
        """Returns the place of the path, or of the nearest value around it."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, (1, 1))

    def origin(self, path: FieldPath) -> FieldPath:
        """Returns the path in the text from which this path of the value comes."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]] + path[length:]
        return path

    def problem(self, path: FieldPath, message: str) -> Problem:
        """Returns a problem with the path's place in the text, or with the override that the path
        comes from.
        """
        path = self.origin(path)
        for over, source in self.overrides.items():
            made_here = path not in self.places and over[: len(path)] == path
            if made_here or path[: len(over)] == over:
                return Problem(source, 0, 0, spell(path), message)
        return Problem(self.source, *self.place(path), spell(path), message)


def spell(path: FieldPath) -> str:
    """Writes `("spec", "env", 0, "name")` as `spec.env[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif len(part) > 200:
            text += f"[{part[:197] + '...'!r}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


def parse(text: str, source: str) -> list[Document]:
    """Returns all documents in the text that are not empty. Raises SpecError where it is not YAML."""
    documents = []
    try:
        if (place := too_deep(text)) is not None:
            message = f"nested over {MAX_DEPTH} levels: too deep to be a training cluster"
            raise SpecError([Problem(source, *place, "", message)])
        for node in _nodes(text):
            document = Document(source)
            builder = _Builder(document)
            document.value = builder.build(node, (), 0)
            if document.value is not None or document.problems:
                documents.append(document)
    except yaml.YAMLError as error:
        raise SpecError([_syntax_problem(error, source, text)]) from None
    except UnicodeEncodeError:
        # An argument of the command line may have bytes that are not UTF-8.
        raise SpecError([Problem(ascii(source)[1:-1], 0, 0, "", "not UTF-8 text")]) from None
    except RecursionError:
        raise SpecError([Problem(source, 0, 0, "", "nested too deeply to be a training cluster")]) from None
    return documents


def too_deep(text: str | bytes) -> tuple[int, int] | None:
    """Returns the line and column (from 1) where YAML nests deeper than MAX_DEPTH; None where it does not, or
    is not YAML. libyaml builds nested values by recursion, and crashes the process when the stack is used up.
    So this check must run before any other reader. The events that it reads need no stack.
    """
    if len(text) <= _SHORT:
        return None
    depth = 0
    try:
        for event in yaml.parse(text, _Loader):
            if isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH + 1 and (mark := event.start_mark) is not None:
                    return mark.line + 1, mark.column + 1
    except (yaml.YAMLError, UnicodeError):
        # The reader that follows reports the error.
        return None
    return None


def _nodes(text: str) -> Iterator[yaml.Node]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            yield loader.get_node()
    finally:
        loader.dispose()


def _syntax_problem(error: yaml.YAMLError, source: str, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    reason = str(getattr(error, "problem", None) or error).split("\n")[0]
    if isinstance(error, yaml.reader.ReaderError) or "control characters" in reason:
        return Problem(
            source, 0, 0, "", "not a text file: it has control characters that YAML does not allow"
        )
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return Problem(
            source, line, column, "", "a tab: YAML indents with spaces only; replace it with spaces"
        )
    return Problem(source, line, column, "", f"not valid YAML: {reason}")


class _Builder:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.values = 0

    def build(self, node: yaml.Node, path: FieldPath, depth: int) -> Any:
        self.values += 1
        if self.values > MAX_VALUES or depth > MAX_DEPTH:
            what = f"over {MAX_VALUES:,} values" if self.values > MAX_VALUES else f"over {MAX_DEPTH} levels"
            raise SpecError(
                [
                    self.document.problem(
                        path[:3], f"{what} once its aliases are followed: too much for a spec"
                    )
                ]
            )
        self.document.places[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _TAGS:
            self._refuse(path, f"the tag {node.tag} is not known here")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - the third and last kind of node
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: FieldPath, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        entries: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or (not key_node.style and not isinstance(_resolve(key), str)):
                message = f"the key {key!r} is not text: put it in quotes" if key else "a key must be text"
                self._report(line, column, path, message)
                continue
            if key == "<<" and not key_node.style:
                merged = {**self._merge(value_node, path, depth), **merged}
                continue
            here = (*path, key)
            if key in entries:
                first, _ = self.document.places[here]
                self._report(line, column, here, f"given twice; the first is on line {first}: keep one")
                continue
            entries[key] = self.build(value_node, here, depth + 1)
            # The key's place, not the value's: a value may begin on a later line.
            self.document.places[here] = (line, column)
        return {**merged, **entries}

    def _merge(self, node: yaml.Node, path: FieldPath, depth: int) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, yaml.MappingNode):
                mark = source.start_mark
                self._report(mark.line + 1, mark.column + 1, path, "'<<' takes a mapping or a list of them")
                continue
            merged.update(self.build(source, path, depth + 1))
        return merged

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        text = str(node.value)
        self.document.written[path] = text
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._refuse(path, "half a surrogate pair is no character")
            return None
        if node.style or node.tag == "!":
            return text
        if node.tag == "tag:yaml.org,2002:str" and not _ONLY_1_2.fullmatch(text):
            return text
        if _AMBIGUOUS.fullmatch(text):
            advice = "write it without a leading 0 or '_', or in quotes if it is text"
            self._refuse(path, f"{text} is not the same number in YAML 1.1 and 1.2: {advice}")
            return None
        if _NOT_FINITE.fullmatch(text):
            self._refuse(path, f"{text} is no number that JSON, and so a manifest, can hold")
            return None
        return _resolve(text)

    def _refuse(self, path: FieldPath, message: str) -> None:
        self.document.problems.append(self.document.problem(path, message))

    def _report(self, line: int, column: int, path: FieldPath, message: str) -> None:
        self.document.problems.append(Problem(self.document.source, line, column, spell(path), message))


def _resolve(text: str) -> Any:
    """Returns the value of a plain scalar by YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text) if len(text) < MAX_DIGITS else text
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return int(text, 0) if len(text) < MAX_DIGITS else text
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
