"""A model directory in a bucket, with a real S3 server: what is whole, what is lost, and what is said."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.s3_server import BUCKET, KEY, SECRET, FaultyProxy, S3Server
from tests.worker.cluster import ROOT, eventually
from worker.buckets import bucket as bucket_module
from worker.buckets import prefetch
from worker.buckets.bucket import Bucket, BucketError, ChangedError
from worker.buckets.mirror import MirroredFiles
from worker.contract.exit_codes import ExitCode
from worker.failures import Failure
from worker.process import lease

OWN = ("checkpoints", "backup")
_numbers = itertools.count()


@pytest.fixture
def url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A path of its own for each test."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/a path/{next(_numbers)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "_UPLOAD_RETRY_SECONDS", 0.5)
    monkeypatch.setattr(bucket_module, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(lease, "STALE_SECONDS", 0.5)
    monkeypatch.setattr(lease, "_LOOK_SECONDS", 0.05)


class Chief(MirroredFiles):
    """Writes checkpoints: one file of random data, and an index that has its digest."""

    def __init__(self, url: str, scratch: Path, patience: float = 60.0) -> None:
        self.notices: list[str] = []
        opened = Bucket(url, patience=patience, notice=self.notices.append)
        super().__init__(opened, str(scratch), own_folders=OWN)

    def save(self, number: int, size: int = 1000) -> None:
        self.before_checkpoint()
        prefix = Path(self.local(f"checkpoints/ckpt-{number}"))
        prefix.parent.mkdir(exist_ok=True)
        content = bytes([number]) * size
        prefix.with_suffix(".data-00000-of-00001").write_bytes(content)
        prefix.with_suffix(".index").write_text(hashlib.sha256(content).hexdigest())
        self.checkpoint_written(f"checkpoints/ckpt-{number}")
        self.write("checkpoints/checkpoint", f"ckpt-{number}")
        old = f"checkpoints/ckpt-{number - 2}"
        if Path(old).name + ".index" in self.names("checkpoints"):
            self.remove([f"{old}.index", f"{old}.data-00000-of-00001"])


def whole(url: str, scratch: Path) -> list[int]:
    """Returns the numbers of the checkpoints that a reader takes for whole, and checks that they are."""
    reader = MirroredFiles(Bucket(url), str(scratch))
    numbers = sorted(int(name[5:-6]) for name in reader.names("checkpoints") if name.endswith(".index"))
    for number in numbers:
        name = f"checkpoints/ckpt-{number}"
        assert reader.fetch_checkpoint(name)
        content = Path(reader.local(f"{name}.data-00000-of-00001")).read_bytes()
        assert Path(reader.local(f"{name}.index")).read_text() == hashlib.sha256(content).hexdigest()
    return numbers


def test_a_checkpoint_is_read_as_it_was_written(url: str, tmp_path: Path) -> None:
    chief = Chief(url, tmp_path / "a")
    for number in (1, 2, 3):
        chief.save(number, size=40 << 20 if number == 3 else 0)  # some parts, and none at all
    assert chief.settle()
    assert whole(url, tmp_path / "b") == [2, 3]
    assert chief.read("checkpoints/checkpoint") == "ckpt-3"
    assert chief.read("nothing") is None
    assert sorted(path.name for path in (tmp_path / "a" / "checkpoints").iterdir()) == [
        "ckpt-3.data-00000-of-00001",
        "ckpt-3.index",
    ], "a pod's disk holds the newest one only"


def test_one_of_two_that_take_a_lease_at_once_is_refused(url: str, impatient: None) -> None:
    at_once = threading.Barrier(2)

    class Together(lease.BucketFiles):
        def read(self, path: str) -> tuple[str | None, str | None]:
            answer = super().read(path)
            with contextlib.suppress(threading.BrokenBarrierError):
                at_once.wait(10)
            at_once.abort()
            return answer

    def claim(run: str) -> None:
        held = lease.Lease(url, lease.new_holder(run, run, None, f"{run}-chief-0"), Together(Bucket(url)))
        try:
            held.claim()
            outcomes.append("held")
        except Failure as refused:
            outcomes.append(f"{refused.exit_code:d} {refused.message}")

    outcomes: list[str] = []
    threads = [threading.Thread(target=claim, args=(run,)) for run in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes)[1] == "held"
    assert sorted(outcomes)[0].startswith(
        f"{ExitCode.PROGRAM_ERROR:d} spec.modelDir: {url} belongs to the run"
    )


def test_a_lease_whose_answer_is_lost_is_held_all_the_same(
    url: str, s3_proxy: FaultyProxy, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "_IMPATIENT_RETRY_SECONDS", 30.0)  # a busy machine asks again late
    lost = iter(["lost"])
    s3_proxy.decide = lambda method, path: next(lost, "pass") if method == "PUT" else "pass"
    held = lease.Lease(url, lease.new_holder("run", "1", None, "run-chief-0"))
    held.claim()
    assert [what for _, _, what in s3_proxy.requests].count("lost") == 1
    assert held.renew() is None
    second = lease.Lease(url, lease.new_holder("run", "1", None, "run-chief-0"))
    second.claim()
    other_holder = held.renew()
    assert other_holder is not None
    assert other_holder.holder == second.holder.holder
    second.give_back()
    assert Bucket(url).read("lease.json") is None


_SAVES = """
import sys
import tempfile
from pathlib import Path
from tests.worker.buckets.test_mirror import Chief
chief = Chief(sys.argv[1], Path(sys.argv[2]))
for number in (2, 3):
    chief.save(number, size=9 << 20)
chief.settle()
"""


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_chief_killed_at_any_request_leaves_whole_checkpoints_only(
    url: str, s3_proxy: FaultyProxy, tmp_path: Path, s3: S3Server
) -> None:
    """It hangs at each of its requests in turn and is killed there. The last turn goes through."""
    first = Chief(url, tmp_path / "first")
    first.save(1)
    assert first.settle()
    seen: set[str] = set()
    for turn in itertools.count():
        count = itertools.count()
        s3_proxy.hanging.clear()
        s3_proxy.decide = lambda method, path, count=count, turn=turn: (  # type: ignore[misc]
            "hang" if next(count) == turn else "pass"
        )
        process = subprocess.Popen([sys.executable, "-c", _SAVES, url, str(tmp_path / "killed")], cwd=ROOT)
        eventually(lambda p=process: s3_proxy.hanging.is_set() or p.poll() is not None, "hang", 60)  # type: ignore[misc]
        is_through = process.poll() is not None
        process.kill()
        process.wait()
        s3_proxy.decide = lambda method, path: "pass"
        numbers = whole(url, tmp_path / "reader")
        seen.add(str(numbers))
        assert max(numbers) >= 1, "what counted as saved is there"
        listed = Bucket(url).read("checkpoints/checkpoint")
        assert listed is not None
        assert int(listed[0][5:]) in numbers, "and so is what TensorFlow's own list names"
        if is_through:
            break
        for name in (2, 3):
            Bucket(url).remove([f"checkpoints/ckpt-{name}.index"])
        first.save(1)
        first.settle()
    assert seen >= {"[1]", "[1, 2]", "[2, 3]"}
    assert turn > 10
    after = Chief(url, tmp_path / "after")
    after.names("checkpoints")
    after.settle()
    left = {item.name.rpartition("/")[2] for item in Bucket(url).items("checkpoints")}
    assert not {name for name in left if ".data" in name and f"{name.partition('.')[0]}.index" not in left}


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_gone_for_a_while_loses_nothing(url: str, s3: S3Server, tmp_path: Path) -> None:
    chief = Chief(url, tmp_path / "a")
    chief.save(1)
    assert chief.settle()
    s3.kill()
    chief.save(2, size=20 << 20)
    assert not chief.settle(lambda: len(chief.notices) > 0), "the training goes on meanwhile"
    s3.start()
    assert chief.settle()
    assert whole(url, tmp_path / "b") == [1, 2]
    assert chief.notices[0].startswith(f"{url}: uploading checkpoints/ckpt-2.data-00000-of-00001 failed: ")
    assert "trying again for up to 60 s" in chief.notices[0]
    assert f"{url} answers again" in chief.notices[-1]
    assert SECRET not in str(chief.notices)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_busy_or_slow_loses_nothing(url: str, s3_proxy: FaultyProxy, tmp_path: Path) -> None:
    faults = itertools.chain(["503", "slow", "lost", "503"] * 2, itertools.cycle(["pass", "pass", "503"]))
    s3_proxy.decide = lambda method, path: next(faults)
    chief = Chief(url, tmp_path / "a")
    for number in (1, 2, 3):
        chief.save(number, size=9 << 20)
    assert chief.settle()
    assert whole(url, tmp_path / "b") == [2, 3]
    assert {what for _, _, what in s3_proxy.requests} == {"503", "slow", "lost", "pass"}


@pytest.mark.usefixtures("impatient")
def test_what_a_server_that_stays_away_does_not_take_is_given_up(
    url: str, s3_proxy: FaultyProxy, tmp_path: Path
) -> None:
    chief = Chief(url, tmp_path / "a", patience=1.0)
    chief.save(1)
    assert chief.settle()
    s3_proxy.decide = lambda method, path: "503"
    chief.save(2)
    with pytest.raises(Failure, match=r"uploading checkpoints/ckpt-2.* failed: SlowDown: Later") as gone:
        chief.settle()
    assert gone.value.exit_code == ExitCode.RETRYABLE
    s3_proxy.decide = lambda method, path: "pass"
    assert whole(url, tmp_path / "b") == [1]
    chief.save(3)
    assert chief.settle(), "what comes later is written"
    assert whole(url, tmp_path / "c")[-1] == 3


@pytest.mark.usefixtures("impatient")
def test_an_upload_that_is_late_is_given_up(url: str, s3_proxy: FaultyProxy, tmp_path: Path) -> None:
    chief = Chief(url, tmp_path / "a")
    s3_proxy.decide = lambda method, path: "hang" if path.endswith(".index") and method == "PUT" else "pass"
    chief.save(1)
    assert not chief.settle(s3_proxy.hanging.is_set)
    s3_proxy.decide = lambda method, path: "pass"
    assert whole(url, tmp_path / "b") == []


@pytest.mark.usefixtures("impatient")
def test_what_is_refused_names_bucket_and_operation_and_no_secret(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for there, variables, error_code in (
        (url, {"AWS_SECRET_ACCESS_KEY": f"{SECRET}-wrong"}, "SignatureDoesNotMatch"),
        (url, {"AWS_ACCESS_KEY_ID": "somebody"}, "InvalidAccessKeyId"),
        (f"s3://no-such-bucket-{next(_numbers)}/x", {}, "NoSuchBucket"),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            opened = Bucket(there, patience=60.0)
            acts: dict[str, Callable[[], object]] = {
                "reading run-state.json": partial(opened.read, "run-state.json"),
                "listing checkpoints": partial(opened.children, "checkpoints"),
            }
            for operation, act in acts.items():
                with pytest.raises(BucketError, match=error_code) as refused:
                    act()
                text = str(refused.value)
                assert text.startswith(f"{there}: {operation} failed: ")
                assert not refused.value.is_temporary
                assert SECRET not in text
                assert KEY not in text


def test_a_checkpoint_that_is_written_anew_while_it_is_read_is_read_again(
    url: str, s3_proxy: FaultyProxy, tmp_path: Path
) -> None:
    chief = Chief(url, tmp_path / "a")
    chief.save(1, size=40 << 20)
    assert chief.settle()
    other = Chief(url, tmp_path / "c")
    assert other.names("checkpoints")

    def write() -> None:
        other.save(1)
        other.settle()

    writing = threading.Thread(target=write)

    def decide(method: str, path: str) -> str:
        """Between two parts of the download another checkpoint takes the place of the first."""
        if method == "GET" and ".data" in path:
            s3_proxy.decide = lambda method, path: "pass"
            writing.start()
            return "slow"
        return "pass"

    s3_proxy.decide = decide
    assert whole(url, tmp_path / "b") == [1]
    writing.join(60)
    assert Path(tmp_path, "b/checkpoints/ckpt-1.data-00000-of-00001").stat().st_size == 1000


def test_another_version_is_not_replaced(url: str) -> None:
    opened = Bucket(url)
    opened.replace("lease.json", b"1", None)
    with pytest.raises(ChangedError):
        opened.replace("lease.json", b"2", None)
    stored = opened.read("lease.json")
    assert stored is not None
    opened.replace("lease.json", b"3", stored[1])
    with pytest.raises(ChangedError):
        opened.replace("lease.json", b"4", stored[1])
    assert opened.read("lease.json") != stored


class Fetched:
    """Data that were copied, by what a program is given."""

    def __init__(self, url: str, **parameters: object) -> None:
        self.said: list[str] = []
        self.notices: list[str] = []
        given = {"dataDir": url, **parameters}
        prefetch.fetch(given, self.said.append, patience=0.0, notice=self.notices.append, alive=lambda: None)
        self.directory = Path(prefetch.with_local_data(given)["dataDir"])

    @property
    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.directory.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in paths}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("disk")
def test_data_are_copied_once_and_are_what_the_bucket_has(url: str) -> None:
    bucket = Bucket(url)
    large = bytes(range(256)) * 100_000
    for name, content in {"train/a b.txt": b"one", "train/b": large, "test/c": b"", "train/": b""}.items():
        bucket.write(name, content)
    first = Fetched(url)
    assert first.files == {"train/a b.txt": b"one", "train/b": large, "test/c": b""}
    assert first.said == [f"listing {url}", f"copying {url}: 0 bytes of 26 MB"]
    kept = (first.directory / "train" / "b").stat().st_ino
    bucket.write("train/a b.txt", b"two")
    bucket.remove(["test/c"])
    second = Fetched(url)
    assert second.files == {"train/a b.txt": b"two", "train/b": large}
    assert (second.directory / "train" / "b").stat().st_ino == kept, "it was there"
    assert prefetch.with_local_data({"dataDir": "/data", "a": 1}) == {"dataDir": "/data", "a": 1}


@pytest.mark.usefixtures("disk", "impatient")
def test_data_that_cannot_be_copied_are_refused_with_the_reason(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failure, match="there is no object below it") as caught:
        Fetched(url)
    assert (url in caught.value.message, caught.value.exit_code) == (True, ExitCode.PROGRAM_ERROR)
    Bucket(url).write("data", b"12345678")
    monkeypatch.setattr(prefetch, "_GB", 1)
    with pytest.raises(Failure, match=r"has 8\.0 GB, and a task copies 7\.0 GB at most: raise para"):
        Fetched(url, dataLimitGB=7)
    monkeypatch.setattr(prefetch, "_SPARE_BYTES", 10**18)
    with pytest.raises(Failure, match=r"8\.0 GB are to be copied, and the disk at .* free: mount a vol"):
        Fetched(url)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(Failure, match="listing it failed: SignatureDoesNotMatch") as caught:
        Fetched(url)
    assert caught.value.exit_code == ExitCode.PROGRAM_ERROR
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Failure, match="listing it failed: connection refused") as caught:
        Fetched(url)
    assert caught.value.exit_code == ExitCode.RETRYABLE


@pytest.mark.usefixtures("disk")
def test_copying_data_waits_for_a_server_that_is_busy(
    url: str, s3_proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    Bucket(url).write("data", b"12345678")
    busy = itertools.count()
    s3_proxy.decide = lambda method, path: "503" if method == "GET" and next(busy) < 2 else "pass"
    assert Fetched(url).files == {"data": b"12345678"}
    assert next(busy) >= 2
