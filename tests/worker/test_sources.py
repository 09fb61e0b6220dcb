"""A program's source that a task fetches: what arrives is what was named, and nothing is written outside."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.gcs_server import BUCKET as GOOGLE
from tests.gcs_server import gcs_server
from tests.s3_server import BUCKET, s3_server
from worker import sources
from worker.contract.exit_codes import ExitCode
from worker.contract.run_config import FetchedSource
from worker.failures import Failure

FILES = {
    "train.py": b"import other\n",
    "lib/other.py": b"X = 1\n" * 50_000,
    "lib/deep/data.bin": os.urandom(9_000),
}


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lib/", b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: Mapping[str, bytes], *others: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for other in others:
            archive.addfile(other)
    return buffer.getvalue()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def there(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


class Fetch:
    """Fetches into a new folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "source"
        self.said: list[str] = []

    def __call__(self, source: FetchedSource, content: bytes = b"", size: int = 10_000) -> dict[str, bytes]:
        parts = []
        for at in range(0, len(content), size):
            part = self.root / f"part-{at}"
            part.write_bytes(content[at : at + size])
            parts.append(str(part))
        sources.fetch(source, parts, self.folder, self.root / "task", 60.0, self.said.append)
        return there(self.folder)

    def failure(self, source: FetchedSource, content: bytes = b"") -> Failure:
        with pytest.raises(Failure) as raised:
            self(source, content)
        return raised.value


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    return Fetch(tmp_path)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Mapping[str, tuple[int, bytes]]], str]]:
    """Serves paths with a status and content over HTTP."""
    servers = []

    def start(answers: Mapping[str, tuple[int, bytes]]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, content = answers[self.path]
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("make", [zipped, tarred])
def test_parts_are_joined(fetch: Fetch, make: Callable[[Mapping[str, bytes]], bytes]) -> None:
    content = make(FILES)
    assert len(content) > 9_000
    source = FetchedSource("parts", digest(content))
    assert fetch(source, content, size=1_000) == FILES
    (fetch.folder / "train.py").write_text("the program's own now")
    assert fetch(source, content)["train.py"] == b"the program's own now", "it is fetched once"


def test_what_was_changed_on_the_way_is_refused(fetch: Fetch) -> None:
    content = zipped(FILES)
    failure = fetch.failure(FetchedSource("parts", digest(content)), content[:-1] + b"x")
    assert failure.exit_code == ExitCode.PROGRAM_ERROR
    assert "the run's ConfigMaps: its SHA-256 is" in failure.message
    assert there(fetch.folder) == {}
    assert fetch(FetchedSource("parts", digest(content)), content) == FILES, "and is fetched anew"


def test_a_folder_of_an_archive(fetch: Fetch, serve: Callable[..., str]) -> None:
    content = tarred({f"repo-1/{name}": content for name, content in FILES.items()})
    url = serve({"/a/repo.tar.gz": (200, content)}) + "/a/repo.tar.gz"
    assert fetch(FetchedSource("archive", digest(content), url, "repo-1")) == FILES
    assert fetch.said == [f"downloading {url}"]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (404, ExitCode.PROGRAM_ERROR),
        (403, ExitCode.PROGRAM_ERROR),
        (503, ExitCode.RETRYABLE),
        (429, ExitCode.RETRYABLE),
    ],
)
def test_a_server_that_refuses(
    fetch: Fetch, serve: Callable[..., str], code: int, exit_code: ExitCode
) -> None:
    url = serve({"/a.zip": (code, b"no")}) + "/a.zip"
    failure = fetch.failure(FetchedSource("archive", "0" * 64, url))
    assert (failure.exit_code, str(code) in failure.message) == (exit_code, True), failure.message


def test_no_server_is_tried_again(fetch: Fetch) -> None:
    assert (
        fetch.failure(FetchedSource("archive", "0" * 64, "http://127.0.0.1:1/a.zip")).exit_code
        == ExitCode.RETRYABLE
    )


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "content",
    [
        zipped({"../outside.py": b"x"}),
        zipped({"/etc/outside.py": b"x"}),
        tarred({"a/../../outside.py": b"x"}),
        tarred({"/outside.py": b"x"}),
    ],
)
def test_a_member_cannot_leave_the_folder(fetch: Fetch, content: bytes) -> None:
    failure = fetch.failure(FetchedSource("parts", digest(content)), content)
    assert "has a file outside of its folder" in failure.message
    assert not [path for path in fetch.root.rglob("*") if path.name == "outside.py"]


def test_links_are_left_out(fetch: Fetch) -> None:
    secret = fetch.root / "secret"
    secret.write_text("x")
    links = (link("out", str(fetch.root), tarfile.SYMTYPE), link("hard", str(secret), tarfile.LNKTYPE))
    content = tarred({"train.py": b"x", "out2": b"y"}, *links)
    assert fetch(FetchedSource("parts", digest(content)), content) == {"train.py": b"x", "out2": b"y"}
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(entry, str(secret))
        archive.writestr("train.py", b"x")
    other = Fetch(fetch.root / "other")
    other.root.mkdir()
    assert other(FetchedSource("parts", digest(buffer.getvalue())), buffer.getvalue()) == {"train.py": b"x"}


@pytest.mark.parametrize("content", [b"no archive", b"PK\x03\x04 broken", b"\x1f\x8b broken", zipped({})])
def test_what_is_no_archive_is_refused(fetch: Fetch, content: bytes) -> None:
    failure = fetch.failure(FetchedSource("parts", digest(content)), content)
    assert failure.exit_code == ExitCode.PROGRAM_ERROR
    assert failure.message.startswith("spec.program.source: the archive")


def test_an_archive_in_a_bucket(fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from worker.buckets.bucket import Bucket

    with s3_server(tmp_path / "s3") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        content = zipped(FILES)
        Bucket(f"s3://{BUCKET}/code").write("mnist.zip", content)
        url = f"s3://{BUCKET}/code/mnist.zip"
        assert fetch(FetchedSource("archive", digest(content), url)) == FILES
        failure = Fetch(tmp_path / "other").failure(FetchedSource("archive", digest(content), f"{url}2"))
        assert (failure.exit_code, "there is no such object" in failure.message) == (
            ExitCode.PROGRAM_ERROR,
            True,
        )


@pytest.mark.nightly
@pytest.mark.thorough
def test_an_archive_at_google(fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped(FILES)
    (tmp_path / "mnist.zip").write_bytes(content)
    url = f"gs://{GOOGLE}/code/mnist.zip"
    copies = "import sys, tensorflow as tf; tf.io.gfile.copy(sys.argv[1], sys.argv[2])"
    with gcs_server(tmp_path / "gcs") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        subprocess.run(
            [sys.executable, "-c", copies, str(tmp_path / "mnist.zip"), url], check=True, timeout=120
        )
        assert fetch(FetchedSource("archive", digest(content), url)) == FILES
        (tmp_path / "other").mkdir()
        failure = Fetch(tmp_path / "other").failure(FetchedSource("archive", digest(content), f"{url}2"))
    assert failure.exit_code == ExitCode.PROGRAM_ERROR, failure.message


# ---- git

PASSWORD = "open sesame $(x) 'y'"


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str, str]:
    """Returns a bare repository, its first commit, and one that no branch has any more."""
    work = tmp_path / "work"

    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        done = subprocess.run(
            ["git", *identity, *words], cwd=work, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    work.mkdir()
    git("init", "--quiet", "--initial-branch", "main")
    (work / "mnist").mkdir()
    (work / "mnist" / "train.py").write_text("FIRST = 1\n")
    (work / "mnist" / "link").symlink_to("/etc/passwd")
    (work / "other.py").write_text("other\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    first = git("rev-parse", "HEAD")
    (work / "mnist" / "train.py").write_text("SECOND = 2\n")
    git("commit", "--quiet", "-am", "second")
    bare = tmp_path / "served" / "models.git"
    git("clone", "--quiet", "--bare", ".", str(bare))
    return bare, first, git("rev-parse", "HEAD")


@pytest.fixture
def git_server(repository: tuple[Path, str, str]) -> Iterator[str]:
    """Git's own server behind HTTP, which asks for a user and a password. Yields its URL."""
    backend = subprocess.run(
        ["git", "--exec-path"], check=True, capture_output=True, text=True
    ).stdout.strip()
    wanted = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            environment = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(repository[0].parent),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            }
            answer = subprocess.run(
                [f"{backend}/git-http-backend"], input=body, env=environment, capture_output=True, check=False
            ).stdout
            head, _, content = answer.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/models.git"
    server.shutdown()
    server.server_close()


def test_a_commit_of_a_repository(
    fetch: Fetch, repository: tuple[Path, str, str], git_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = repository
    monkeypatch.setenv("GIT_USERNAME", "me")
    monkeypatch.setenv("GIT_PASSWORD", PASSWORD)
    files = fetch(FetchedSource("git", first, git_server))
    assert files == {"mnist/train.py": b"FIRST = 1\n", "mnist/link": b"/etc/passwd", "other.py": b"other\n"}
    assert not (fetch.folder / "mnist" / "link").is_symlink()
    assert not list(fetch.root.rglob("askpass")), "nothing of the credentials stays"
    other = Fetch(fetch.root / "other")
    assert other(FetchedSource("git", second, git_server, "mnist"))["train.py"] == b"SECOND = 2\n"
    failure = Fetch(fetch.root / "third").failure(FetchedSource("git", second, git_server, "absent"))
    assert "has no folder absent at that commit" in failure.message
    failure = Fetch(fetch.root / "fourth").failure(FetchedSource("git", "0" * 40, git_server))
    assert failure.exit_code == ExitCode.PROGRAM_ERROR


def test_a_wrong_password_ends_the_run_and_is_not_shown(
    fetch: Fetch, repository: tuple[Path, str, str], git_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_USERNAME", "me")
    monkeypatch.setenv("GIT_PASSWORD", "a-wrong-one")
    failure = fetch.failure(FetchedSource("git", repository[1], git_server))
    assert failure.exit_code == ExitCode.PROGRAM_ERROR
    assert "Authentication failed" in failure.message
    assert "a-wrong-one" not in failure.message
    monkeypatch.delenv("GIT_USERNAME")
    assert fetch.failure(FetchedSource("git", repository[1], git_server)).exit_code == ExitCode.PROGRAM_ERROR


def test_a_git_server_that_is_away_is_tried_again(fetch: Fetch, serve: Callable[..., str]) -> None:
    commit = "0" * 40
    assert (
        fetch.failure(FetchedSource("git", commit, "http://127.0.0.1:1/x.git")).exit_code
        == ExitCode.RETRYABLE
    )
    url = serve({"/x.git/info/refs?service=git-upload-pack": (503, b"")})
    assert fetch.failure(FetchedSource("git", commit, f"{url}/x.git")).exit_code == ExitCode.RETRYABLE


def test_an_image_without_git_is_told(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "the image has no git" in fetch.failure(FetchedSource("git", "0" * 40, "http://x/y.git")).message
