"""Loads TrainingClusters from a path, or from standard input by "-". It reports all problems of a file at
once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from launcher import tfjob
from launcher.config import yaml_parser
from launcher.config.spec import API_VERSION, FORMS, TrainingCluster
from launcher.config.yaml_parser import MAX_BYTES, MAX_DEPTH, Document, FieldPath
from launcher.errors import Problem, SpecError
from launcher.lists_and_counts import did_you_mean, listed, nearest
from launcher.object_names import PROGRAM
from launcher.pod_spec.pod_fields import MISSING
from launcher.validation import rules
from worker.contract.strategies import StrategyName

STDIN = "-"


@dataclass(frozen=True)
class Loaded:
    """A valid cluster, and the directory of its relative paths. `source` says where it comes from."""

    cluster: TrainingCluster
    directory: Path
    source: str
    conversion: tfjob.Conversion | None = None
    """The conversion, if it was a TFJob."""
    allow_outside: bool = False
    """Whether the program's source may be outside of the directory, also through a link."""
    document: Document | None = dataclasses.field(default=None, repr=False, compare=False)
    """The document that it was read from, with the places of its fields."""

    def problem(self, path: FieldPath, message: str) -> Problem:
        """Returns a problem with the place of the field, where that is known."""
        if self.document is None:
            return Problem(self.source, 0, 0, yaml_parser.spell(path), message)
        return self.document.problem(path, message)


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    allow_outside: bool = False,
    further: Callable[[Loaded], Sequence[Problem]] | None = None,
) -> list[Loaded]:
    """Returns every run in the file; `-` is standard input.

    `overrides` are `field=value` as in `spec.worker.replicas=4`, applied to each document; the value is read
    as YAML. Without `allow_outside`, a program's source outside of the file's folder is refused, also through
    a link. Raises SpecError with all that is wrong, and with what `further` finds in such a run, which it
    gets without its wrong fields.
    """
    path = os.fspath(path)
    source = "standard input" if path == STDIN else _printable(path)
    directory = Path.cwd() if path == STDIN else Path(path).absolute().parent
    if path.endswith((".py", ".ipynb")):
        message = (
            f"a program: `{PROGRAM} run` trains a script; for others give the cluster.yaml that names them"
        )
        raise SpecError([Problem(source, 0, 0, "", message)])
    documents = yaml_parser.parse(_read(path, source), source)
    if not documents:
        raise SpecError([Problem(source, 0, 0, "", f"empty: `{PROGRAM} init` writes a file to start from")])

    return _valid(documents, overrides, directory, source, allow_outside=allow_outside, further=further)


def _printable(path: str) -> str:
    """Returns a printable path: bytes that are not UTF-8 become escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check(
    given: TrainingCluster | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    directory: Path | None = None,
    source: str = "the cluster",
) -> Loaded:
    """Returns the same for a file's content that Python has. Relative paths start from `directory`, by
    default the current one. Raises SpecError, whose problems have no lines.
    """
    if isinstance(given, TrainingCluster):
        given = given.model_dump(mode="json", exclude_unset=True, warnings=False)
    try:
        value = json.loads(json.dumps(dict(given), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"expected what a file can hold: text, numbers, lists and mappings ({error})"
        raise SpecError([Problem(source, 0, 0, "", message)]) from None
    if _depth(value) > MAX_DEPTH:
        message = f"nested over {MAX_DEPTH} levels: too deep to be a training cluster"
        raise SpecError([Problem(source, 0, 0, "", message)])
    document = Document(source, value, places={(): (0, 0)})
    return _valid([document], overrides, directory or Path.cwd(), source)[0]


def _depth(value: Any) -> int:
    """Returns how deep the value nests, up to the limit."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [v for each in inner for v in each if isinstance(v, dict | list)]
        depth += 1
    return depth


def _valid(
    documents: Sequence[Document],
    overrides: Sequence[str],
    directory: Path,
    source: str,
    *,
    allow_outside: bool = False,
    further: Callable[[Loaded], Sequence[Problem]] | None = None,
) -> list[Loaded]:
    loaded, problems = [], []
    names: dict[tuple[str, str], int] = {}
    for document in documents:
        for override in overrides:
            _override(document, override)
        document, conversion = _converted(document)
        cluster, document_problems = _validate(document)
        if cluster is None:
            problems += sorted(document_problems, key=_position)
            continue
        one = Loaded(cluster, directory, source, conversion, allow_outside, document)
        if document_problems and further is not None:
            wrong = {problem.path for problem in document_problems}
            document_problems += [problem for problem in further(one) if problem.path not in wrong]
        elif not document_problems:
            run = (cluster.metadata.namespace, cluster.metadata.name)
            line = document.place(("metadata", "name"))[0]
            if run in names:
                message = f"the run {run[1]} stands on line {names[run]} already: give each its own name"
                document_problems.append(document.problem(("metadata", "name"), message))
            names.setdefault(run, line)
            loaded.append(one)
        problems += sorted(document_problems, key=_position)
    if problems:
        raise SpecError(problems)
    return loaded


def _position(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column


def _read(path: str, source: str) -> str:
    def refused(message: str) -> SpecError:
        return SpecError([Problem(source, 0, 0, "", message)])

    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refused(f"no such file{_nearest(Path(path))}") from None
    except IsADirectoryError:
        raise refused("a folder: give the cluster.yaml in it") from None
    except (OSError, ValueError) as error:
        raise refused(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise refused(f"over {MAX_BYTES >> 20} MiB: not a training cluster")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(f"not UTF-8 text (byte {error.start}): not a training cluster") from None


def _nearest(path: Path) -> str:
    try:
        names = [neighbour.name for neighbour in path.parent.iterdir()]
    except OSError:
        return ""
    if near := nearest(path.name, names):
        return f"; did you mean {path.with_name(near)}?"
    return "" if path.suffix else f": expected a cluster.yaml, not a run's name; `{PROGRAM} init` writes one"


_TOP_LEVEL: Final = ("apiVersion", "kind", "metadata", "spec")


def _override(document: Document, override: str) -> None:
    name, equals, text = override.partition("=")
    source = f"--set {override if len(override) <= 200 else override[:197] + '...'}"
    keys = [part for part in re.split(r"\.|\[(\d+)\]", name) if part]
    if not equals or not keys:
        message = "expected field=value, as in --set spec.worker.replicas=4"
        raise SpecError([Problem(source, 0, 0, "", message)])
    if _printable(name) != name:
        raise SpecError([Problem(_printable(source), 0, 0, "", "not UTF-8 text")])
    if len(keys) > MAX_DEPTH:
        raise SpecError([Problem(source, 0, 0, "", f"over {MAX_DEPTH} levels: no field is so deep")])
    if isinstance(document.value, dict) and keys[0] not in (*_TOP_LEVEL, *document.value):
        message = f"a field's name begins with spec. (or metadata.), as in --set spec.{override}"
        raise SpecError([Problem(source, 0, 0, "", message[:400])])
    values = yaml_parser.parse(text, source)
    for problem in values[0].problems if values else ():
        raise SpecError([Problem(source, 0, 0, name, problem.message)])
    value = values[0].value if values else None
    here: Any = document.value
    path: tuple[str | int, ...] = ()
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        step: str | int = key
        if isinstance(here, list):
            # More digits than the index of any list has, and than Python converts.
            if not key.isdecimal() or len(key) > 6 or int(key) >= len(here):
                message = f"{yaml_parser.spell(path)} has no entry {key[:20]}"
                raise SpecError([Problem(source, 0, 0, name[:200], message)])
            step = int(key)
        elif not isinstance(here, dict):
            message = f"{yaml_parser.spell(path) or 'the document'} is no mapping"
            raise SpecError([Problem(source, 0, 0, name, message)])
        path = (*path, step)
        if last:
            here[step] = value
            for below in [p for p in document.written if p[: len(path)] == path]:
                del document.written[below]
            document.written[path] = text
            document.overrides[path] = source
        else:
            if isinstance(here, dict) and here.get(step) is None:
                here[step] = {}
            here = here[step]


def _converted(document: Document) -> tuple[Document, tfjob.Conversion | None]:
    """Returns a TFJob's document with the equivalent TrainingCluster as its value, None where it is too wrong
    to convert; returns any other document unchanged.
    """
    value = document.value
    if not isinstance(value, dict) or not tfjob.is_kubeflow(value):
        return document, None
    conversion = tfjob.convert(value)
    problems = [
        *document.problems,
        *(document.problem(path, message) for path, message in conversion.problems),
    ]
    made = dataclasses.replace(
        document, value=conversion.value or None, origins=conversion.origins, problems=problems
    )
    return made, conversion


def _validate(document: Document) -> tuple[TrainingCluster | None, list[Problem]]:
    """Returns the cluster, without its wrong fields, and every problem. It is None where no cluster is left.

    Rules over several fields can be checked only on a whole cluster. So that a typo does not hide their
    problems, they are checked on the document without its wrong fields.
    """
    problems = list(document.problems)
    value = document.value
    if not isinstance(value, dict):
        message = "expected a mapping with apiVersion, kind, metadata and spec"
        return None, problems or [document.problem((), message)]
    if (kind := _other_kind(value)) is not None:
        message = f"expected TrainingCluster or TFJob, not {kind}: write it to a file of its own, for kubectl"
        return None, [*problems, document.problem(("kind",), message)]
    cluster, errors = _build(value)
    for error in errors:
        problems.append(_explain(document, error))
    if errors:
        cluster = _build(_without(value, errors))[0]
    if cluster is not None:
        # A TFJob's misspelt field has been removed before, and would be reported as missing, too.
        holders = {problem.path.rpartition(".")[0] for problem in document.problems}
        rule_problems = [document.problem(path, message) for path, message in rules.broken(cluster)]
        # What was removed is not missing.
        wrong = {problem.path for problem in problems}
        problems += [
            problem
            for problem in rule_problems
            if problem.path not in wrong
            if problem.message != MISSING or problem.path.rpartition(".")[0] not in holders
        ]
    return cluster, problems


def _other_kind(value: Mapping[str, Any]) -> str | None:
    """Returns the kind of a Kubernetes object beside the runs, which has none of a run's fields."""
    version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    ours = version.partition("/")[0] == API_VERSION.partition("/")[0]
    return None if ours or nearest(kind, ["TrainingCluster"]) else kind


def _build(value: dict[str, Any]) -> tuple[TrainingCluster | None, list[ErrorDetails]]:
    try:
        # Through JSON: in pydantic's strict JSON mode a list is valid for a tuple, and no other type is
        # converted.
        return TrainingCluster.model_validate_json(json.dumps(value), by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _path(error: ErrorDetails) -> tuple[str | int, ...]:
    """Returns the path without the entries that pydantic adds for a union's form or a mapping's key."""
    return tuple(part for part in error["loc"] if part not in (*FORMS, "[key]"))


def _without(value: dict[str, Any], errors: Sequence[ErrorDetails]) -> dict[str, Any]:
    """Returns the document without its wrong fields; a required field gets a valid substitute.

    A list with a wrong entry is removed as a whole, so that no other entry changes its place.
    """
    left: dict[str, Any] = json.loads(json.dumps(value))
    for error in errors:
        path = _path(error)
        first_index = next((i for i, part in enumerate(path) if isinstance(part, int)), len(path))
        *parents, field = (str(part) for part in path[:first_index])
        here: Any = left
        for part in parents:
            here = here.get(part) if isinstance(here, dict) else None
        if not isinstance(here, dict):
            continue
        wrong = here.pop(field, None)
        if field == "strategy":
            near = nearest(str(wrong), get_args(StrategyName))
            here.update({field: near} if near else {})
        elif field in STAND_INS and first_index == len(path):
            here[field] = STAND_INS[field]
    return left


STAND_INS: Final = {
    "apiVersion": API_VERSION,
    "kind": "TrainingCluster",
    "metadata": {"name": "run"},
    "name": "run",
    "entrypoint": "module:object",
    "script": "script.py",
}


_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "a string",
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "an integer"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean, true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping"),
}
"""What a value should have been, by the kind of pydantic's error."""


def _explain(document: Document, error: ErrorDetails) -> Problem:
    """Returns a problem that says what to write. Pydantic's names of types are for programmers."""
    path, kind, given = _path(error), error["type"], error["input"]
    context = error.get("ctx", {})
    written = document.written.get(document.origin(path), json.dumps(given, ensure_ascii=False, default=str))
    if "[key]" in error["loc"]:
        written = str(path[-1])
    shown = written if written.isprintable() else written.encode("unicode_escape").decode()
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    shown = shown if shown and shown == shown.strip() else f'"{shown}"'
    if kind == "extra_forbidden":
        return document.problem(path, _unknown(path))
    if kind == "missing":
        return document.problem(path, "missing: it must be given")
    if (expected := _EXPECTED.get(kind)) is not None:
        message = f"expected {expected}, not {_called(given, shown)}"
        if kind.startswith(("int", "bool")):
            message += _quoted(given)
        elif kind == "string_type" and isinstance(given, int | float):
            message += f': put it in quotes, "{written}"'
    elif kind == "literal_error":
        # As in "'a', 'b' or 'c'", and "2 or 3".
        choices = re.findall(r"[^', ]+", str(context["expected"]).replace(" or ", " "))
        message = f"expected {listed(choices, last='or')}, not {shown}{did_you_mean(str(given), choices)}"
    elif kind == "greater_than_equal":
        message = f"expected at least {context['ge']}, not {shown}"
    elif kind == "less_than_equal":
        message = f"expected at most {context['le']}, not {shown}"
    elif kind == "string_pattern_mismatch":
        message = f"expected module:object, such as mnist:Mnist, not {shown}"
    elif kind == "value_error":
        message = f"{context['error']}, not {shown}"
    elif kind == "too_short":
        message = "expected at least one entry"
    else:
        message = f"{error['msg'][0].lower()}{error['msg'][1:]}, not {shown}"
    return document.problem(path, message)


def _called(value: Any, shown: str) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return shown


_OF_TFJOB: Final[Mapping[str, str]] = {
    "tfReplicaSpecs": "it is a TFJob's, taken as it is with apiVersion: kubeflow.org/v1, kind: TFJob",
    "cleanPodPolicy": "here it is spec.runPolicy.cleanPolicy",
    "successPolicy": "here it is spec.strategyOptions.successPolicy, of strategy: Custom",
    "enableDynamicWorker": "here it is spec.sparseClusterSpec, of strategy: Custom",
    "schedulingPolicy": "here it is spec.scheduling",
}
"""Fields of a TFJob, and what they are in a cluster.yaml."""


def _quoted(value: Any) -> str:
    """Returns advice about a text that is a number or a truth value without its quotes."""
    is_other = isinstance(value, str) and re.fullmatch(r"[+-]?\d+|true|false", value)
    return f" in quotes: write {value}" if is_other else ""


def _unknown(path: tuple[str | int, ...]) -> str:
    name = str(path[-1])
    if path[0] == "spec" and name in _OF_TFJOB:
        return f"unknown field; {_OF_TFJOB[name]}"
    fields = _fields_at(path[:-1])
    near = next((field for field in fields if field.lower() == name.lower()), "") or nearest(name, fields)
    if near:
        return f"unknown field; did you mean {near}?"
    if len(path) == 1 and path[0] in _fields_at(("spec",)):
        return f"unknown field; did you mean spec.{path[0]}?"
    return f"unknown field; expected one of {', '.join(sorted(fields))}" if fields else "unknown field"


def _fields_at(path: tuple[str | int, ...]) -> list[str]:
    """Returns the names of the fields of the model at this path."""
    model: type[BaseModel] = TrainingCluster
    for part in path:
        if isinstance(part, int):
            continue
        fields = [f for f in model.model_fields.values() if f.alias == part]
        inner = [m for f in fields for m in _models(f.annotation)]
        if not inner:
            return []
        model = inner[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
