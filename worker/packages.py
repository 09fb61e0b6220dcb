"""Installs the packages that a program needs and the image lacks (`program.packages`), before anything
imports them. Standard library only.

pip installs them into a virtual environment of the run's own, in which it sees the image's packages, too. So
it adds what is missing. TensorFlow, Keras and all that they need keep the image's versions: TensorFlow is
built for those.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from types import FrameType
from typing import NoReturn

from worker.contract.exit_codes import ExitCode
from worker.failures import Failure, program_error

_TENSORFLOWS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tensorflow-intel",
    "tensorflow-cpu-aws", "tf-nightly", "tf-nightly-cpu",
)  # fmt: skip
"""Packages that are TensorFlow. To pip, an image that has one of them has them all: tf_keras requires
`tensorflow` by that name.
"""
_KEPT = (*_TENSORFLOWS, "keras", "tf-keras", "tensorboard", "obstore")
"""What keeps the image's version, with all that it requires."""
_REQUIRED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_POLL_SECONDS = 0.2
_COMPLETE = "complete"
"""A file that an environment has once all is installed."""
_IMAGES_PACKAGES = "of-the-image.pth"
_CONFLICT = "ResolutionImpossible"
_ERROR = re.compile(r"^ERROR: (.*(?:\n +.*)*)", re.MULTILINE)
_NOT_FETCHED = re.compile(r"Could not fetch URL (\S+): (.*) - skipping")
"""pip's log says it of a page of an index. pip goes on without that, and finds no package then."""
_REFUSED = re.compile(r"40[0-7] Client Error")
_AWAY = re.compile(
    r"Retrying \(Retry\(|Max retries exceeded|connection broken|timed out|HTTP error (?:429|5\d\d)"
)
"""What pip says of a server that does not answer, or not now."""
_CAUSES = re.compile(r"The conflict is caused by:\n(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_SHOWN = 1_000
"""Characters of pip's words in a message."""


def install(
    requirements: Sequence[str], folder: Path, seconds: float, say: Callable[[str], None]
) -> Mapping[str, str]:
    """Makes `requirements`, lines of pip's, importable in this process. Returns the environment variables by
    which the programs that it starts find them, too.

    The environment for just these packages and this image lies in `folder`, which several tasks may share:
    one of them installs, the others wait for it. `say` is told what goes on.

    Raises Failure with pip's words: PROGRAM_ERROR where the packages cannot be installed, RETRYABLE where
    their index does not answer or `seconds` are over.
    """
    deadline = time.monotonic() + seconds
    kept = _kept()
    known = [list(requirements), kept, sys.version, sys.platform, os.uname().machine, _image_folders()]
    root = folder / hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    count = f"{len(requirements)} package{'' if len(requirements) == 1 else 's'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{root.name}.lock", deadline, seconds, say):
            if not (root / _COMPLETE).exists():
                say(f"installing {count}")
                _Installation(root, requirements, kept, deadline, seconds).run()
        return _use(root)
    except OSError as error:
        raise program_error(f"spec.program.packages: {folder} cannot hold them: {error}") from error


class _Installation:
    """A virtual environment that is being made."""

    def __init__(
        self,
        root: Path,
        requirements: Sequence[str],
        kept: Mapping[str, str],
        deadline: float,
        seconds: float,
    ) -> None:
        self._root = root
        self._requirements = requirements
        self._kept = kept
        self._deadline = deadline
        self._seconds = seconds
        self._python = str(root / "bin" / "python")

    def run(self) -> None:
        if self._root.exists():  # a task was ended while it installed
            shutil.rmtree(self._root)
        # Debian's Python has venv without ensurepip.
        own_pip = importlib.util.find_spec("pip") is None
        if own_pip and importlib.util.find_spec("ensurepip") is None:
            raise program_error(
                f"spec.program.packages: {sys.executable} has no pip to install them with: use an image with "
                "pip, or one that has the packages"
            )
        venv.create(self._root, symlinks=True)
        packages = Path(self._call("-c", "import sysconfig; print(sysconfig.get_path('purelib'))")[1].strip())
        if own_pip:
            self._call("-m", "ensurepip")
        lines = [f"import site; site.addsitedir({path!r})\n" for path in _image_folders()]
        (packages / _IMAGES_PACKAGES).write_text("".join(lines), encoding="utf-8")
        self._name_tensorflow(packages)
        self._install()
        # The task has the image's packages already, behind these.
        (packages / _IMAGES_PACKAGES).unlink()
        (self._root / _COMPLETE).write_text(str(packages), encoding="utf-8")

    def _name_tensorflow(self, packages: Path) -> None:
        """Has pip find the image's TensorFlow by each of its names."""
        version = next((self._kept[name] for name in _TENSORFLOWS if name in self._kept), None)
        for name in _TENSORFLOWS if version is not None else ():
            if name not in self._kept:
                described = packages / f"{name.replace('-', '_')}-{version}.dist-info"
                described.mkdir()
                text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                (described / "METADATA").write_text(text, encoding="utf-8")

    def _install(self) -> None:
        wanted, constraints = self._root / "requirements.txt", self._root / "constraints.txt"
        wanted.write_text("".join(f"{line}\n" for line in self._requirements), encoding="utf-8")
        kept = [f"{name}=={version}\n" for name, version in self._kept.items()]
        constraints.write_text("".join(kept), encoding="utf-8")
        log = self._root / "pip.log"
        options = ("--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off")
        files = ("--requirement", str(wanted), "--constraint", str(constraints), "--log", str(log))
        code, output = self._call("-m", "pip", "install", *options, *files)
        if code != 0:
            raise _failure(output, log.read_text(encoding="utf-8", errors="replace"))
        print("".join(line for line in output.splitlines(True) if line.startswith("Successfully")), end="")

    def _call(self, *arguments: str) -> tuple[int, str]:
        """Returns exit code and output of the environment's Python. SIGTERM ends it, and this process."""
        # In a folder of its own: a module of the program's beside it would take the place of Python's.
        process = subprocess.Popen(
            [self._python, *arguments],
            cwd=self._root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def leave(number: int, frame: FrameType | None) -> NoReturn:
            _kill(process)
            os._exit(ExitCode.PREEMPTED)

        before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            output, _ = process.communicate(timeout=max(1.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise _late(self._seconds, "they are not installed") from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return process.returncode, output


def _failure(output: str, log: str) -> Failure:
    """Returns what pip's output and its log come to."""
    if _CONFLICT in output:
        match = _CAUSES.search(output)
        causes = "; ".join(
            line.strip() for line in (match.group(1) if match is not None else "").splitlines()
        )
        causes = causes.replace("The user requested (constraint)", "the image has")
        causes = causes.replace("The user requested", "the file asks for")
        return program_error(
            f"spec.program.packages: they do not go with each other, or with the image's TensorFlow: "
            f"{_short(causes)}; give other versions, or an image that has them"
        )
    errors = [" ".join(each.split()) for each in _ERROR.findall(output)]
    reason = _short("; ".join(dict.fromkeys(errors)) or output.strip())
    pages = dict(_NOT_FETCHED.findall(log))
    unanswered = {page: why for page, why in pages.items() if not _REFUSED.search(why)}
    page_problem = "".join(
        f"; {_short(f'{page}: {why}')}" for page, why in [*unanswered.items(), *pages.items()][:1]
    )
    if unanswered or _AWAY.search(output):
        message = f"spec.program.packages: the package index does not answer: {reason}{page_problem}"
        return Failure(message, ExitCode.RETRYABLE)
    return program_error(
        f"spec.program.packages: pip cannot install them: {reason}{page_problem}; pip reads its variables, "
        "such as PIP_INDEX_URL, from the tasks' env"
    )


def _late(seconds: float, what: str) -> Failure:
    return Failure(
        f"spec.program.packages: {what} after {seconds:.0f} s (runPolicy.startingDeadlineSeconds)",
        ExitCode.RETRYABLE,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # pip starts others to build packages


@contextlib.contextmanager
def _locked(path: Path, deadline: float, seconds: float, say: Callable[[str], None]) -> Iterator[None]:
    waits = False
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waits:
                    say("waiting for the packages, which another task installs")
                waits = True
            if time.monotonic() > deadline:
                raise _late(seconds, "another task has not installed them")
            time.sleep(_POLL_SECONDS)
        yield


def _use(root: Path) -> dict[str, str]:
    """Puts the environment's packages before the image's on the module path."""
    packages = (root / _COMPLETE).read_text(encoding="utf-8")
    before = list(sys.path)
    site.addsitedir(packages)
    added = [path for path in sys.path if path not in before]
    images = _image_folders()
    first = next((at for at, path in enumerate(before) if path in images), len(before))
    sys.path[:] = [*before[:first], *added, *before[first:]]
    importlib.invalidate_caches()
    paths = {"PATH": [str(root / "bin"), os.environ.get("PATH") or os.defpath]}
    paths["PYTHONPATH"] = [*filter(None, [os.environ.get("PYTHONPATH")]), packages]
    return {name: os.pathsep.join(each) for name, each in paths.items()}


def _image_folders() -> list[str]:
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _kept() -> dict[str, str]:
    """Returns name and version of what keeps the image's version."""
    installed = {_normal(each.metadata["Name"]): each for each in reversed(list(distributions()))}
    kept: dict[str, str] = {}
    waiting = [name for name in _KEPT if name in installed]
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept[name] = installed[name].version
        for line in installed[name].requires or ():
            required = _REQUIRED_NAME.match(line)
            if required is not None and "extra ==" not in line and _normal(required.group()) in installed:
                waiting.append(_normal(required.group()))
    return dict(sorted(kept.items()))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
