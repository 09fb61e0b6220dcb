"""Makes docs/reference/ and docs/compatibility.md from the code; `make docs` runs it, and a test compares."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import launcher
from launcher.cli import parser, run_document
from launcher.config import json_schema
from launcher.tfjob import fields
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.program import Program

HERE = Path(__file__).parent
SHAPES = Path(__file__).parent.parent / "tests" / "worker" / "matrix" / "shapes.json"
"""What came of the last run of `make shapes`."""
VERSIONS = Path(__file__).parent.parent / "tests" / "worker" / "tensorflow_versions.json"
"""What passed in the last runs of `make test-tensorflow`."""
ORDER = (
    "TrainingCluster",
    "Metadata",
    "Spec",
    "Program",
    "RemoteSource",
    "GitSource",
    "ArchiveSource",
    "Role",
    "WorkerRole",
    "RoleTemplate",
    "EnvVar",
    "JobMetadata",
    "VolumeMount",
    "Requirements",
    "Storage",
    "RunPolicy",
    "Evaluation",
    "Checkpoints",
    "KeepBest",
    "StrategyOptions",
    "Scheduling",
    "TensorBoard",
    "Tracking",
    "Precheck",
    "Mlflow",
    "Monitoring",
    "PodMonitor",
    "Peer",
    "LabelSelector",
    "Requirement",
    "IpBlock",
    "DataService",
)


EXAMPLE = Path(__file__).parent.parent / "examples" / "every-method" / "every_method.py"
"""Has each method of a program. A test trains it."""


def _program() -> list[str]:
    """Each method of worker.program.Program: what it gets and gives, and an example."""
    written = EXAMPLE.read_text(encoding="utf-8")
    (example,) = [node for node in ast.parse(written).body if isinstance(node, ast.ClassDef)]
    examples = {node.name: node for node in example.body if isinstance(node, ast.FunctionDef)}
    parts = [
        inspect.cleandoc(Program.__doc__ or ""),
        f"The examples are of `{EXAMPLE.relative_to(EXAMPLE.parents[2])}`.",
    ]
    for name, method in vars(Program).items():
        if name.startswith("_"):
            continue
        arguments = ", ".join(list(inspect.signature(method).parameters)[1:])
        code = textwrap.dedent(ast.get_source_segment(written, examples[name], padded=True) or "")
        parts += [
            f"## {name}({arguments})",
            inspect.cleandoc(method.__doc__ or ""),
            f"```python\n{code.strip()}\n```",
        ]
    return parts


def pages() -> dict[Path, str]:
    """Returns the text of each page."""
    parts = {
        "reference/cluster-yaml.md": ["# cluster.yaml", CLUSTER_TEXT, *_models()],
        "reference/tfjob.md": [
            "# A TFJob",
            TFJOB_TEXT,
            _table(["field", "meaning"], _tfjob("TFJob", "")),
            ", ".join(f"`{name}`" for name in fields.OLD_POLICY)
            + " count in `spec` too, if not in `runPolicy`.",
        ],
        "reference/program.md": ["# A program's methods", *_program()],
        "reference/commands.md": [
            "# Commands",
            " ".join(parser.WHERE.split()),
            "The launcher's exit codes; [a task's](tasks.md#exit-codes) are others:",
            _table(["code", "meaning"], [[str(code), text] for code, text in parser.EXIT_CODES.items()]),
            *_commands(parser.parser()),
        ],
        "reference/output.md": ["# What `-o json` prints", *_output()],
        "reference/python.md": ["# Python", PYTHON_TEXT, *_python()],
        "reference/tasks.md": [
            "# Exit codes and environment of a task",
            "## Exit codes",
            EXIT_CODES_TEXT,
            _table(
                ["code", "name", "meaning"],
                [[str(int(code)), code.name, _attribute_text(ExitCode, code.name)] for code in ExitCode],
            ),
            "## Environment",
            _table(
                ["variable", "meaning"],
                [
                    [f"`{value}`", _attribute_text(Env, name)]
                    for name, value in vars(Env).items()
                    if name.isupper() and isinstance(value, str)
                ],
            ),
        ],
        "compatibility.md": [
            "# Compatibility",
            COMPATIBILITY_TEXT,
            "## Programs of every shape",
            *_shapes(json.loads(SHAPES.read_text(encoding="utf-8"))),
            "## TensorFlow",
            *_versions(json.loads(VERSIONS.read_text(encoding="utf-8"))),
            "## Versions",
            VERSIONS_APART,
        ],
    }
    return {HERE / name: "\n\n".join([*text[:1], MADE, *text[1:]]) + "\n" for name, text in parts.items()}


MADE = "<!-- Made from the code by `make docs`. -->"
COMPATIBILITY_TEXT = (
    "Which programs train by which strategy, with which TensorFlow? "
    "Which versions of the launcher go together?"
)
PYTHON_TEXT = (
    "What does `import launcher` offer? All is typed, and loaded when it is first used. "
    "[From Python](../python.md) shows how to use it."
)
EXIT_CODES_TEXT = (
    "The manifests' podFailurePolicy reads them. The launcher's own are with its [commands](commands.md)."
)
TFJOB_TEXT = (
    "Which fields of a TFJob are read, and what becomes of each? They are the training-operator 1.9's; "
    "[Bring a TFJob](../scripts.md#bring-a-tfjob) says where it differs."
)
CLUSTER_TEXT = (
    "Which fields has the file, and what do they mean? Their names are Kubernetes' own wherever it has one. "
    "`python -m launcher schema` prints the same as JSON Schema, for an editor."
)
VERSIONS_APART = """\
The launcher, the worker runtime, the chart and the images have one version, which `version` prints.

**A later launcher takes over.** A run that the last release has submitted, on a cluster or on this machine,
is listed, shown, followed to its end, suspended, resumed, replaced and deleted by this one. Its tasks go on
with the runtime that they began with. `tests/releases` keeps what each release has made, and the tests try
this with it; so far that is 0.1.0.

**The launcher of the last release** can list, show, follow, suspend, resume and delete what this one has
submitted. It passes over what it does not know. This was tried by hand, with 0.1.0 on runs of 0.2.0: no
test has an old launcher.

**Neither changes a run of the other's that is running.** `submit` of its file, without `--replace`, may find
that the objects differ: it says what, changes nothing and exits with 4. `--replace` by the later launcher
starts the run anew from its backup, with the later one's runtime. `--replace` by the earlier one is not
promised.

Where the runtime is the image's (`runtime: Image`), the image must be of the version of the launcher that
has submitted the run: a task of another version ends with 70 and says so. What 0.1.0 has trained on this
machine into a claim with `reclaimPolicy: Delete` is in the run's own folder, and goes when the run is
submitted again."""


def _models() -> list[str]:
    document = json.loads(json_schema.as_json())
    models = {**document["$defs"], "TrainingCluster": document}
    parts = []
    for name in ORDER:
        model = models[name]
        required = model.get("required", [])
        shared = models["RoleTemplate"]["properties"] if name in ("Role", "WorkerRole") else {}
        rows = [
            [f"`{field}`", _type(value), _default(field, value, required), value.get("description", "")]
            for field, value in model.get("properties", {}).items()
            if field not in shared
        ]
        if shared:
            rows.append(["...", "", "", "and all of [RoleTemplate](#roletemplate)"])
        parts.append(f"## {name}")
        parts.append(model["description"])
        if rows:
            parts.append(_table(["field", "type", "default", "meaning"], rows))
    return parts


TFJOB = {
    "apiVersion": "`kubeflow.org/v1`, or `v1beta2`, which is read as v1; others are refused.",
    "kind": "`TFJob`.",
    "metadata": "`name` or `generateName`, `namespace`, `labels` and `annotations`. What a server adds is "
    "left out; the label `kueue.x-k8s.io/queue-name` becomes `spec.scheduling`.",
    "status": "Left out.",
    "spec.runPolicy.cleanPodPolicy": "`None` (default), `Running` or `All`: `runPolicy.cleanPolicy`.",
    "spec.runPolicy.ttlSecondsAfterFinished": "When a finished run is deleted. Default: never.",
    "spec.runPolicy.activeDeadlineSeconds": "When the run fails, with all its tasks. Default: never.",
    "spec.runPolicy.backoffLimit": "Tries that the tasks of a role have together. Default: no limit.",
    "spec.runPolicy.schedulingPolicy.minAvailable": "`scheduling.minMember`.",
    "spec.runPolicy.schedulingPolicy.queue": "`scheduling.queue`.",
    "spec.runPolicy.schedulingPolicy.minResources": "`scheduling.minResources`.",
    "spec.runPolicy.schedulingPolicy.priorityClass": "`scheduling.priorityClassName`.",
    "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds": "`scheduling.scheduleTimeoutSeconds`, of "
    "scheduler-plugins only.",
    "spec.runPolicy.suspend": "The run is made, and started by `resume`. Default: false.",
    "spec.runPolicy.managedBy": "`kubeflow.org/training-operator`, or left out; others are refused.",
    "spec.successPolicy": '`""` (default): worker 0 decides; `AllWorkers`: all do. A chief decides alone.',
    "spec.tfReplicaSpecs.*.replicas": "Default: 1. One `Chief` or `Master` and one `Evaluator` at most, any "
    "number of `Worker` and `PS`, in any case of letters.",
    "spec.tfReplicaSpecs.*.restartPolicy": "`Never` (default), `OnFailure`, `Always`, the same here, or "
    "`ExitCode`: 128 to 255 is retried, 1 to 127 fails the run.",
    "spec.tfReplicaSpecs.*.template": "A pod template with a container `tensorflow`; its port named "
    "`tfjob-port` is the one in TF_CONFIG (default: 2222).",
    "spec.enableDynamicWorker": "TF_CONFIG is sparse, and with `Never` a worker that fails is not missed. "
    "Default: false.",
}
"""What becomes of each field."""


def _tfjob(kind: str, here: str) -> list[list[str]]:
    rows = []
    for name, inner in fields.TFJOB[kind].items():
        path = f"{here}.{name}" if here else name
        if inner in fields.TFJOB:
            rows += _tfjob(inner, path)
        elif inner == "Dict[str, ReplicaSpec]":
            rows += _tfjob("ReplicaSpec", f"{path}.*")
        else:
            rows.append([f"`{path}`", TFJOB[path]])
    return rows


SHAPES_TEXT = (
    "What a program may be, by strategy and by how it trains: as Model.fit would, by the program's `loss()` "
    "or `train_step()`, by a script of one's own (`args`, with Model.fit) or a function (with a loop), "
    "which build their strategy themselves. `make shapes` trains each of them, with 2 CPU devices or "
    "workers where nothing else is said. It evaluates, checkpoints, resumes and exports them, and "
    "compares them with TensorFlow in one process: where all replicas take a step together, weights and "
    "metrics are equal within 1e-5, whatever the sizes of the batches. Not so plain batch "
    "normalisation, where each replica has the statistics of its own examples, and mixed precision, "
    "whose float16 sums depend on their order (1e-2). Under ParameterServer each worker reads the data "
    "for itself: steps and examples are counted exactly, and the loss falls. What is refused is refused "
    "before the training, with the message below."
)


def _shapes(record: dict[str, Any]) -> list[str]:
    """A table, and the messages that its cells refer to."""
    styles, strategies = record["styles"], record["strategies"]
    messages: list[str] = []

    def cell(outcomes: dict[str, str], asked: list[str]) -> str:
        if set(asked) - set(outcomes):
            return "no outcome yet"
        refused: dict[str, list[str]] = {}
        for style, outcome in outcomes.items():
            if outcome != "trains":
                refused.setdefault(outcome, []).append(styles[style])
        if not refused:
            return "all"
        messages.extend(message for message in refused if message not in messages)
        parts = [f"{', '.join(named)} [{messages.index(message) + 1}]" for message, named in refused.items()]
        return ("all but " if "trains" in outcomes.values() else "none: ") + "; ".join(parts)

    rows = [
        [
            shape["title"],
            *(cell(shape["outcomes"].get(name, {}), column["styles"]) for name, column in strategies.items()),
        ]
        for shape in record["shapes"].values()
    ]
    counted = Counter(
        outcome == "trains"
        for shape in record["shapes"].values()
        for outcomes in shape["outcomes"].values()
        for outcome in outcomes.values()
    )
    count = f"Of {counted.total():,} cells {counted[True]:,} train and {counted[False]:,} are refused."
    notes = [f"{number}. {message}" for number, message in enumerate(messages, 1)]
    table = _table(["program", *(column["title"] for column in strategies.values())], rows)
    return [SHAPES_TEXT, count, table, "Refused:", "\n".join(notes)]


VERSIONS_TEXT = (
    "An image for the runtime that travels has Python 3.9 or newer and TensorFlow 2.16 or newer. An older "
    "one is refused by one message; with a TensorFlow newer than the newest of these there is a notice. "
    "`make test-tensorflow` made an environment of each from PyPI, with nothing of the launcher's in it. "
    "From the archive that travels it ran the tests of all that TensorFlow and Keras keep private and the "
    "runtime uses. It trained Keras 3 models with several optimizers for 20 steps on two replicas, whose "
    "weights equal those of one process within 1e-12. It ran the demo (ParameterServer, an evaluator, "
    "export), which trains on 1,000 images there and is scored on 300."
)


def _versions(record: dict[str, Any]) -> list[str]:
    """A table, a row for each TensorFlow and Python."""
    heads = {"tensorflow-cpu": "TensorFlow", "python": "Python", "keras": "Keras 3", "tf_keras": "tf_keras"}
    heads |= {
        "tensorboard": "TensorBoard",
        "contracts": "tests passed",
        "keras_3": "Keras 3 optimizers",
        "accuracy": "the demo's accuracy",
    }
    rows = [[str(row.get(name) or "none") for name in heads] for row in record.values()]
    return [VERSIONS_TEXT, _table(list(heads.values()), rows)]


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    for union in ("anyOf", "oneOf"):
        if union in value:
            return " or ".join(_type(choice) for choice in value[union] if choice.get("type") != "null")
    kind = value.get("type")
    if kind == "array":
        return f"list of {_type(value['items'])}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"map of {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return str(kind or "any")


def _default(field: str, value: dict[str, Any], required: list[str]) -> str:
    if field in required:
        return "must be given"
    default = value.get("default")
    return "" if default in (None, {}, []) else f"`{json.dumps(default)}`"


def _commands(parser: argparse.ArgumentParser) -> list[str]:
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    parts = []
    for name, command in commands.choices.items():
        parts.append(f"## {name}")
        parts.append(str(command.description))
        rows = [
            ["`" + ", ".join(action.option_strings or [str(action.metavar)]) + "`", _help(action)]
            for action in command._actions
            if action.dest != "help"
        ]
        if rows:
            parts.append(_table(["argument", "meaning"], rows))
    return parts


OUTPUT_TEXT = (
    "The same as YAML by `-o yaml`. The schema is stable: fields may be added, none changes its meaning. "
    "`schema status` and `schema list` print it as JSON Schema. With `--watch` each change is a document, as "
    "JSON in a line of its own."
)
OUTPUT = (
    "Run",
    "Metadata",
    "Status",
    "Progress",
    "Checkpoint",
    "AtStake",
    "Evaluation",
    "Membership",
    "Role",
    "Task",
    "RunList",
)


def _output() -> list[str]:
    """The documents of `status` and `list`."""
    document = run_document.schema(run_document.RunList)
    models = {**document["$defs"], "RunList": document}
    parts = [OUTPUT_TEXT]
    for name in OUTPUT:
        rows = [
            [f"`{field}`", _output_type(value), value.get("description", "")]
            for field, value in models[name]["properties"].items()
        ]
        parts += [f"`{name}`: {models[name]['description']}", _table(["field", "type", "meaning"], rows)]
    return parts


def _output_type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return f"`{value['$ref'].rsplit('/', 1)[1]}`"
    if value.get("type") == "array":
        return f"list of {_output_type(value['items'])}"
    if "anyOf" in value:
        return " or ".join(_output_type(choice) for choice in value["anyOf"])
    if value.get("type") == "object":
        return f"map of {_output_type(value['additionalProperties'])}"
    if value.get("format") == "date-time":
        return "time"
    return _type(value)


def _python() -> list[str]:
    """Each function, and the Run, with its signature; what they give and raise in a table."""
    parts: list[str] = []
    values: list[list[str]] = []
    for name in launcher.__all__:
        member = getattr(launcher, name)
        if inspect.isfunction(member):
            parts += [f"## launcher.{name}", _signature(name, member), *_paragraphs(member)]
        elif inspect.isclass(member) and name != "Run":
            values.append([f"`{name}`", _prose(member)])
    methods = [(name, member) for name, member in vars(launcher.Run).items() if inspect.isfunction(member)]
    rows = [
        [f"`{_signature(name, method, lines=False)}`", _prose(method)]
        for name, method in methods
        if not name.startswith("_")
    ]
    table = _table(["method", "what it does"], rows)
    parts += ["## launcher.Run", *_paragraphs(launcher.Run), table]
    return [*parts, "## Values and exceptions", _table(["name", "what it is"], values)]


class _Written(str):
    """An annotation as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(name: str, function: Any, *, lines: bool = True) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_Written(parameter.annotation))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    given = signature.replace(parameters=parameters, return_annotation=_Written(signature.return_annotation))
    text = f"{name}{given}"
    if lines and len(text) > 80:
        inner = str(given.replace(return_annotation=inspect.Signature.empty))[1:-1]
        # A comma between brackets is within an annotation.
        inner = re.sub(r", (?![^\[(]*[\])])", ",\n    ", inner)
        text = f"{name}(\n    {inner},\n) -> {signature.return_annotation}"
    return f"```\n{text}\n```" if lines else text


def _paragraphs(documented: Any) -> list[str]:
    """Of a docstring, each in one line; an example stays as it is."""
    paragraphs = re.split(r"\n\n(?=\S|    \S)", inspect.getdoc(documented) or "")
    return [
        f"```\n{inspect.cleandoc(text)}\n```" if text.startswith("    ") else " ".join(text.split())
        for text in paragraphs
    ]


def _prose(documented: Any) -> str:
    return " ".join(text for text in _paragraphs(documented) if not text.startswith("```"))


def _help(action: argparse.Action) -> str:
    return str(action.help or "") % {"default": action.default}


def _attribute_text(owner: type, name: str) -> str:
    """The string below an attribute, in the contract's source."""
    body = inspect.getsource(owner)
    match = re.search(rf'    {name}\b[^\n]*\n    """(.*?)"""', body, re.DOTALL)
    if match is None:
        raise SystemExit(f"{owner.__module__}: {owner.__name__}.{name} has no text below it")
    return " ".join(match[1].split())


def _table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
