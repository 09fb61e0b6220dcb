"""What a Job's controller decides: which index to start when, and when the Job has ended.

It has no processes and no clock: the supervisor reports what happened and the time (in seconds of any clock
that does not go back), and asks what to do. Source: kubernetes/kubernetes
`pkg/controller/job/job_controller.go`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from launcher.backends.local.supervisor.pod_failure_policy import match_failure, success_rule
from launcher.index_ranges import format_indexes

UNLIMITED: Final = 2**31 - 1
DEFAULT_BACKOFF_LIMIT: Final = 6


@dataclass(frozen=True)
class Backoff:
    """The delay before a failed pod's replacement: `base` seconds, doubled by each failure, at most `limit`.

    Kubernetes takes 10 s and 10 minutes. There it covers scheduling, volumes and images, and spares an API
    server that everyone shares; a process on one's own machine needs none of that, so here a tenth.
    """

    base: float = 1.0
    limit: float = 60.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after this many failures; 0 after none."""
        if failures <= 0:
            return 0.0
        return min(self.limit, self.base * 2.0 ** min(failures - 1, 32))


@dataclass(frozen=True)
class Verdict:
    """How a Job ends: the condition it will get once its pods are gone, with Kubernetes' reason."""

    type: Literal["Complete", "Failed"]
    reason: str
    message: str


class JobController:
    """One Job. `completions` indexes, each with at most one pod at a time."""

    def __init__(self, job: Mapping[str, Any], backoff: Backoff) -> None:
        spec = job["spec"]
        self.name: str = job["metadata"]["name"]
        self.completions: int = spec.get("completions", 1)
        self.generation = 1
        """How often its spec was changed, from 1, as Kubernetes counts."""
        self.suspended: bool = bool(spec.get("suspend"))
        self.verdict: Verdict | None = None
        self.active: set[int] = set()
        self.succeeded: set[int] = set()
        self.failed_indexes: set[int] = set()
        self.failed = 0
        """Failed pods that count for the limits."""
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.restarting = True
        """False: no failed pod is replaced any more."""
        self._spec = spec
        self.parallelism: int = spec.get("parallelism", self.completions)
        self._per_index: int | None = spec.get("backoffLimitPerIndex")
        default = DEFAULT_BACKOFF_LIMIT if self._per_index is None else UNLIMITED
        self._limit: int = spec.get("backoffLimit", default)
        self._backoff = backoff
        self._waiting: list[tuple[float, int]] = [(0.0, index) for index in range(self.completions)]
        self._index_failures: dict[int, int] = {}
        """Failed pods of each index that count."""
        self._delays: dict[int, int] = {}
        """Failures that lengthen the delay, ignored ones too, of each index."""
        self._since_success = 0

    @property
    def finished(self) -> bool:
        """Whether it has its terminal condition."""
        return self.finished_at is not None

    def startable(self, now: float) -> list[int]:
        """The indexes to start now. The caller starts them all, or says `ended`."""
        if self.suspended or self.verdict is not None or not self.restarting:
            return []
        if self.started_at is None:
            self.started_at = now
        indexes = []
        while self._waiting and self._waiting[0][0] <= now and len(self.active) < self.parallelism:
            _, index = heapq.heappop(self._waiting)
            self.active.add(index)
            indexes.append(index)
        return indexes

    def next_time(self) -> float | None:
        """When to call `startable` or `expire` again, if nothing else happens before."""
        if self.suspended or self.verdict is not None:
            return None
        times = []
        if self.restarting and self._waiting and len(self.active) < self.parallelism:
            times.append(self._waiting[0][0])
        if (deadline := self._deadline()) is not None:
            times.append(deadline)
        return min(times, default=None)

    def ended(self, index: int, pod_name: str, pod_status: Mapping[str, Any], now: float) -> None:
        """A pod has ended by itself. `pod_status` is the pod's, with its exit code."""
        self.active.discard(index)
        if index >= self.completions:
            return
        if pod_status["phase"] == "Succeeded":
            self.succeeded.add(index)
            self._since_success = 0
        else:
            self._failure(index, pod_name, pod_status, now)
        self._judge()

    def removed(self, index: int) -> None:
        """A pod is gone that the supervisor stopped: neither a success nor a failure."""
        self.active.discard(index)
        if self.verdict is None and index < self.completions:
            heapq.heappush(self._waiting, (0.0, index))

    def expire(self, now: float) -> None:
        """Fails a Job that has been active for longer than activeDeadlineSeconds."""
        deadline = self._deadline()
        if deadline is not None and now >= deadline:
            message = "Job was active longer than specified deadline"
            self.decide(Verdict("Failed", "DeadlineExceeded", message))

    def decide(self, verdict: Verdict) -> None:
        """Decides how the Job ends, unless that was decided before."""
        if self.verdict is None:
            self.verdict = verdict
            self.suspended = False

    def settle(self, now: float) -> bool:
        """Gives a decided Job without pods its terminal condition. True when this did it."""
        if self.verdict is None or self.active or self.finished:
            return False
        self.finished_at = now
        return True

    def suspend(self) -> None:
        """No pod is started any more; the caller stops those that run."""
        if self.verdict is None:
            self.suspended = True
            self.started_at = None

    def resume(self) -> None:
        """Undoes `suspend`. activeDeadlineSeconds counts from now."""
        self.suspended = False

    def scale(self, completions: int) -> None:
        """Changes the number of indexes, and of pods at a time with it. The caller stops the pods of indexes
        that are no more. An index that comes back begins anew, also one that had failed for good.
        """
        if self.verdict is not None:
            return
        before, self.completions, self.parallelism = self.completions, completions, completions
        self.generation += 1
        for ended in (self.succeeded, self.failed_indexes):
            ended.intersection_update(range(completions))
        for counts in (self._index_failures, self._delays):
            for index in [index for index in counts if index >= completions]:
                del counts[index]
        self._waiting = [(time, index) for time, index in self._waiting if index < completions]
        # One whose pod still ends waits for that, see `removed`.
        added = set(range(before, completions)) - self.active
        self._waiting += [(0.0, index) for index in sorted(added)]
        heapq.heapify(self._waiting)
        self._judge()

    def stop_restarting(self) -> None:
        """No failed pod is replaced any more."""
        self.restarting = False

    def status(self) -> dict[str, Any]:
        """The Job's `status`, without times and conditions."""
        status: dict[str, Any] = {
            "active": len(self.active),
            "ready": len(self.active),
            "succeeded": len(self.succeeded),
            "failed": self.failed,
        }
        if self.succeeded:
            status["completedIndexes"] = format_indexes(self.succeeded)
        if self._per_index is not None:
            status["failedIndexes"] = format_indexes(self.failed_indexes)
        return status

    def _deadline(self) -> float | None:
        limit = self._spec.get("activeDeadlineSeconds")
        if limit is None or self.started_at is None or self.verdict is not None:
            return None
        return self.started_at + float(limit)

    def _failure(self, index: int, pod_name: str, pod_status: Mapping[str, Any], now: float) -> None:
        match = match_failure(self._spec.get("podFailurePolicy"), pod_name, pod_status)
        self._since_success += 1
        self._delays[index] = self._delays.get(index, 0) + 1
        if match is None or match.action != "Ignore":
            self.failed += 1
            self._index_failures[index] = self._index_failures.get(index, 0) + 1
        if match is not None and match.action == "FailJob":
            self.decide(Verdict("Failed", "PodFailurePolicy", match.message))
        elif self._per_index is not None and (
            self._index_failures.get(index, 0) > self._per_index
            or (match is not None and match.action == "FailIndex")
        ):
            self.failed_indexes.add(index)
        elif self._per_index is not None:
            heapq.heappush(self._waiting, (now + self._backoff.delay(self._delays[index]), index))
        else:
            # Without a limit per index Kubernetes delays all of the Job's pods alike.
            after = now + self._backoff.delay(self._since_success)
            self._waiting = [(max(time, after), waiting) for time, waiting in self._waiting]
            self._waiting.append((after, index))
            heapq.heapify(self._waiting)

    def _judge(self) -> None:
        """In the controller's order: failures first."""
        most_failed = self._spec.get("maxFailedIndexes")
        rule = success_rule(self._spec.get("successPolicy"), self.succeeded)
        if self.failed > self._limit:
            self.decide(
                Verdict("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
            )
        elif most_failed is not None and len(self.failed_indexes) > most_failed:
            message = "Job has exceeded the specified maximal number of failed indexes"
            self.decide(Verdict("Failed", "MaxFailedIndexesExceeded", message))
        elif rule is not None:
            self.decide(Verdict("Complete", "SuccessPolicy", f"Matched rules at index {rule}"))
        elif len(self.succeeded) + len(self.failed_indexes) == self.completions:
            if self.failed_indexes:
                self.decide(Verdict("Failed", "FailedIndexes", "Job has failed indexes"))
            else:
                message = "Reached expected number of succeeded pods"
                self.decide(Verdict("Complete", "CompletionsReached", message))
