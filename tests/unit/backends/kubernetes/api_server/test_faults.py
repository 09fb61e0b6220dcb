"""Faults that a real API server does not have on demand: a small HTTP server is busy, broken, or cuts
connections.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from launcher.backends.kubernetes.api_server.api_errors import ApiError, UnreachableError
from launcher.backends.kubernetes.observe.pod_logs import LogSource, PodLog, Tail
from launcher.backends.kubernetes.observe.watch import (
    Changed,
    Denied,
    Listed,
    Lost,
    Mailbox,
    ObjectWatch,
    Regained,
)
from launcher.backends.kubernetes.preflight.versions import check_version
from launcher.errors import BackendError
from tests.unit.fake_api import Answer, Fake, event, hangs_up, listing, pod, says, streams, waits

EXPIRED = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}}).encode() + b"\n"


def name_only(item: dict[str, Any]) -> dict[str, Any]:
    return {"name": item["metadata"]["name"]}


@contextmanager
def watched(fake: Fake) -> Iterator[Callable[[int], list[Any]]]:
    """A running watch; the function returns that many of its messages."""
    mailbox = Mailbox()
    watch = ObjectWatch(fake.client, mailbox, "Pod", "default", slim=name_only)
    watch.start()

    def take(count: int) -> list[Any]:
        messages: list[Any] = []
        while len(messages) < count:
            more = mailbox.get(20)
            assert more, f"only {messages}"
            messages += more
        return messages

    try:
        yield take
    finally:
        mailbox.closed.set()
        watch.stop()
        watch.join(20)
        assert not watch.is_alive()


def changed(name: str) -> Changed:
    return Changed("Pod", {"name": name}, gone=False)


LISTED = Listed("Pod", [{"name": "a"}])


def test_a_busy_server_is_asked_again(fake: Fake) -> None:
    busy = says({"message": "too many"}, 429, Retry_After="1")
    fake.will(busy, says({"message": "etcd"}, 500), listing("a"))
    items, version = fake.client.list("Pod", "default")
    assert ([item["metadata"]["name"] for item in items], version) == (["a"], "7")
    assert len(fake.asked) == 3


def test_a_server_that_stays_busy(fake: Fake) -> None:
    fake.will(says({"message": "please wait"}, 429, Retry_After="3600"))
    with pytest.raises(ApiError, match=r"cannot list pods in namespace default now \(429\): please wait"):
        fake.client.list("Pod", "default")
    assert len(fake.asked) == 1


def test_an_answer_of_something_in_between(fake: Fake) -> None:
    fake.will(says(b"<html>Bad Gateway</html>", 502))
    with pytest.raises(ApiError, match="<html>Bad Gateway</html>"):
        fake.client.list("Pod", "default", repeated=False)


def test_an_answer_that_is_no_json(fake: Fake) -> None:
    fake.will(says(b"<html>Sign in</html>"))
    with pytest.raises(UnreachableError, match="no JSON"):
        fake.client.list("Pod", "default")


def test_a_connection_that_was_closed_while_idle(fake: Fake) -> None:
    fake.will(listing("a"), hangs_up, listing("b"))
    fake.client.list("Pod", "default")
    items, _ = fake.client.list("Pod", "default")
    assert items[0]["metadata"]["name"] == "b"


def test_a_server_that_always_hangs_up(fake: Fake) -> None:
    fake.will(hangs_up)
    with pytest.raises(UnreachableError, match=r"the connection to the API server .* broke"):
        fake.client.list("Pod", "default")
    assert len(fake.asked) == 2


def test_a_list_in_pages(fake: Fake) -> None:
    first = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [pod("a")]}
    fake.will(says(first), listing("b", version="8"))
    items, version = fake.client.list("Pod", None)
    assert ([item["metadata"]["name"] for item in items], version) == (["a", "b"], "8")
    assert fake.asked[1] == ("/api/v1/pods", {"limit": "500", "continue": "more"})


@pytest.mark.parametrize("text", ["v1.32.9", "v1.32.9-eks-1234", "1.9.0"])
def test_a_cluster_that_is_too_old(fake: Fake, text: str) -> None:
    fake.will(says({"gitVersion": text}))
    with pytest.raises(BackendError, match=r"runs Kubernetes 1\.(32|9); this needs 1\.33 or newer"):
        check_version(fake.client)


@pytest.mark.parametrize("text", ["v1.33.0", "v1.36.2+k3s1", "v1.33.1-gke.100", "v2.0.0", "unknown"])
def test_a_cluster_that_is_new_enough(fake: Fake, text: str) -> None:
    fake.will(says({"gitVersion": text}))
    check_version(fake.client)


def test_a_watch_goes_on_where_it_was_cut_off(fake: Fake) -> None:
    cut = streams(event("ADDED", "b", "8"), b'{"type": "MODIFIED", "obj', cut=True)
    fake.will(listing("a"), cut, streams(event("MODIFIED", "c", "9")), waits)
    with watched(fake) as take:
        assert take(3) == [LISTED, changed("b"), changed("c")]
    assert [query.get("resourceVersion") for _, query in fake.asked[:3]] == [None, "7", "8"]


def test_a_watch_that_ends_in_the_middle_of_a_line_in_good_order(fake: Fake) -> None:
    fake.will(listing("a"), streams(event("ADDED", "b", "8")[:-9]), streams(event("ADDED", "b", "8")), waits)
    with watched(fake) as take:
        assert take(2) == [LISTED, changed("b")]
    assert [query.get("resourceVersion") for _, query in fake.asked[:3]] == [None, "7", "7"]


def test_a_line_in_several_pieces(fake: Fake) -> None:
    line = event("ADDED", "b", "8")
    fake.will(listing("a"), streams(line[:5], line[5:20], line[20:] + event("ADDED", "c", "9")), waits)
    with watched(fake) as take:
        assert take(3) == [LISTED, changed("b"), changed("c")]


def test_a_bookmark_moves_on(fake: Fake) -> None:
    fake.will(listing("a"), streams(event("BOOKMARK", "", "70")), waits)
    with watched(fake) as take:
        take(1)
        while len(fake.asked) < 3:
            pass
    assert fake.asked[2][1]["resourceVersion"] == "70"


@pytest.mark.parametrize("expired", [streams(EXPIRED), says({"code": 410, "message": "too old"}, 410)])
def test_an_expired_version_is_listed_anew(fake: Fake, expired: Answer) -> None:
    fake.will(listing("a"), expired, listing("b", version="90"), waits)
    with watched(fake) as take:
        assert take(2) == [LISTED, Listed("Pod", [{"name": "b"}])]
    assert [query.get("resourceVersion") for _, query in fake.asked[:4]] == [None, "7", None, "90"]


def test_an_outage_is_told_once_and_so_is_its_end(fake: Fake) -> None:
    broken = says({"message": "etcd is away"}, 500)
    busy = says({"message": "too many"}, 429, Retry_After="1")
    fake.will(listing("a"), broken, hangs_up, busy, streams(event("ADDED", "b", "8")), waits)
    with watched(fake) as take:
        listed, lost, regained, added = take(4)
    assert (listed, regained, added) == (LISTED, Regained("Pod"), changed("b"))
    assert isinstance(lost, Lost)
    assert "etcd is away" in lost.error.message


def test_a_token_that_expires_meanwhile(fake: Fake) -> None:
    fake.will(listing("a"), says({"message": "Unauthorized"}, 401))
    with watched(fake) as take:
        messages = take(3)
    assert isinstance(messages[-1], Denied)
    assert "does not know who you are" in messages[-1].error.message


SOURCE = LogSource("default", "mnist-chief-0-abcde", "chief", 0, 0)


def line(second: int, text: str) -> bytes:
    return f"2026-01-01T00:00:{second:02d}.5Z {text}\n".encode()


def test_a_log_goes_on_after_its_last_line(fake: Fake) -> None:
    fake.will(
        streams(line(1, "one"), line(2, "two"), line(3, "cut")[:10], cut=True),
        says({"message": "the node does not answer"}, 500),
        # The server has times in whole seconds.
        streams(line(2, "two"), line(3, "three"), b"2026-01-01T00:00:04.5Z no end of line"),
    )
    mailbox = Mailbox()
    tail = Tail(fake.client, mailbox, SOURCE, tail=None)
    tail.start()
    texts: list[str] = []
    while len(texts) < 4:
        more = mailbox.get(20)
        assert more, texts
        texts += [each.text for each in more]
    tail.pod_ended()
    tail.join(20)
    assert not tail.is_alive()
    assert texts == ["one", "two", "three", "no end of line"]
    assert fake.asked[2][1]["sinceTime"] == "2026-01-01T00:00:02.5Z"
    assert "follow" not in fake.asked[-1][1]


def test_a_log_that_is_gone(fake: Fake) -> None:
    fake.will(says({"message": 'pods "mnist-chief-0-abcde" not found'}, 404))
    tail = Tail(fake.client, Mailbox(), SOURCE, tail=None)
    tail.start()
    tail.join(20)
    assert not tail.is_alive()


def test_a_log_of_a_node_that_is_gone_does_not_hold_up_the_end(fake: Fake) -> None:
    fake.will(says({"message": "dial tcp: no route to host"}, 500))
    tail = Tail(fake.client, Mailbox(), SOURCE, tail=None)
    tail.start()
    tail.pod_ended()
    tail.join(20)
    assert not tail.is_alive()


def test_a_log_that_is_read_is_closed_from_outside(fake: Fake) -> None:
    fake.will(waits)
    tail = Tail(fake.client, Mailbox(), SOURCE, tail=None)
    tail.start()
    while not fake.asked:
        pass
    tail.stop()
    tail.join(20)
    assert not tail.is_alive()


def test_what_kubelet_writes_among_the_lines_is_not_the_program_s(fake: Fake) -> None:
    sentence = b"unable to retrieve container logs for containerd://0123abcd\n"
    fake.will(streams(line(1, "one"), sentence), streams(sentence, b"\n", line(2, "two")))
    log = PodLog(fake.client, SOURCE)
    assert [each.text for each in log.read()] == ["one"]
    assert [each.text for each in log.read()] == ["two"]
    assert fake.asked[1][1]["sinceTime"] == "2026-01-01T00:00:01.5Z"


def test_a_line_without_end_is_cut(fake: Fake) -> None:
    fake.will(streams(line(1, "").rstrip(b"\n"), *[b"x" * (1 << 16)] * 40, b"\n", line(2, "two")))
    lines = list(PodLog(fake.client, SOURCE).read())
    assert [len(each.text) <= 1 << 20 for each in lines] == [True, True]
    assert lines[-1].text == "two"
