"""The event loop of one run. It carries out what the Job controllers decide, and reports to them what
happens.

It sleeps until a process ends, a word comes through the control pipe, the launcher is gone, or a time is due.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from typing import Final

from launcher.backends import run_end_rule
from launcher.backends.local import metrics, ports
from launcher.backends.local.log_growth import LOOK_SECONDS, GrowthRecorder
from launcher.backends.local.pod.environment import MissingError
from launcher.backends.local.pod.pods import PodTemplate, Surroundings
from launcher.backends.local.pod.running_pod import LivePod
from launcher.backends.local.process.processes import adopt_orphans, kill_children, kill_marked, reap_orphans
from launcher.backends.local.store import RunDirectory, Submission, remove_scratch
from launcher.backends.local.supervisor.job_status import Clock, job_view
from launcher.backends.local.supervisor.jobs import Backoff, JobController, Verdict
from launcher.status import SCALED_DOWN, Phase, elastic, is_primary, leaves, said_needed

_RETRY_SECONDS: Final = 1.0
"""Seconds until the next try to write the state to a full disk."""

_GIVE_UP_SECONDS: Final = 60.0
"""How long that is tried after the run has ended. Then commands show the run as lost."""


class Supervisor:
    """Carries out one submission. `control` is the descriptor of `RunDirectory.open_control`; at the end of
    file of `lifeline` the run is stopped.
    """

    def __init__(
        self, directory: RunDirectory, control: int, lifeline: int | None, surroundings: Surroundings
    ) -> None:
        submission = directory.submission()
        if submission is None:
            raise FileNotFoundError(directory.path)
        self._directory = directory
        self._submission: Submission = submission
        self._control = control
        self._lifeline = lifeline
        self._metrics = metrics.addresses(submission)
        self._clock = Clock()
        settings = submission.settings
        backoff = Backoff(settings.backoff, settings.backoff_limit)
        jobs = submission.of_kind("Job")
        self._templates = [PodTemplate(directory, submission, job, surroundings) for job in jobs]
        self._controllers = [JobController(job, backoff) for job in jobs]
        self._primary = next((number for number, job in enumerate(jobs) if is_primary(job)), 0)
        self._live: dict[tuple[int, int], LivePod] = {}
        self._logs: dict[tuple[int, int], GrowthRecorder] = {}
        """Of the pods that live."""
        self._look_due = 0.0
        self._attempts: dict[tuple[int, int], int] = {}
        self._pods: list[LivePod] = []
        """All pods of the run, in the order of their creation."""
        self._failures: dict[int, str] = {}
        """The task that failed last, and how, for each Job."""
        self._short = run_end_rule.Since()
        """Since when fewer tasks are left than the run needs, for each Job of which that is so."""
        self._policy_due: float | None = None
        self._told_to_end = False
        self._dirty = True
        self._write_again: float | None = None
        self._cannot_write_since: float | None = None

    def supervise(self) -> None:
        """Returns when every Job has ended and no process is left."""
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._tell_to_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        adopt_orphans()
        with contextlib.suppress(OSError):
            metrics.write_targets(self._directory, self._submission)
        poll = select.poll()
        for descriptor in (self._control, wake.fileno(), self._lifeline):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        while not self._step():
            for descriptor, _ in poll.poll(self._timeout()):
                if descriptor == self._control:
                    for word in os.read(self._control, 4096).decode(errors="replace").split():
                        self._obey(word)
                elif descriptor == self._lifeline:
                    poll.unregister(descriptor)
                    self._stop("the launcher that it belonged to is gone")
                else:
                    wake.recv(4096)
        self._end()

    def _tell_to_end(self, *_: object) -> None:
        self._told_to_end = True

    def _obey(self, word: str) -> None:
        if word == "suspend":
            for controller in self._controllers:
                controller.suspend()
        elif word == "resume":
            for controller in self._controllers:
                controller.resume()
        elif word == "stop":
            self._stop("deleted by user")
        elif word == "interrupt":
            self._stop("interrupted")
        elif word.startswith("scale:"):
            self._scale(*word.removeprefix("scale:").split(":"))
        elif word.startswith("crash:"):
            for pod in self._live.values():
                if pod.object["spec"]["hostname"] == word.removeprefix("crash:"):
                    pod.crash()
        elif word == "kill":
            self._stop("interrupted twice")
            for pod in self._live.values():
                pod.kill()
        self._dirty = True

    def _scale(self, job: str, completions: str, generation: str) -> None:
        """`generation` is that of the Job which the command saw: of two commands at once the first wins."""
        for controller in self._controllers:
            if controller.name == job and controller.generation == int(generation):
                controller.scale(int(completions))

    def _stop(self, reason: str) -> None:
        for controller in self._controllers:
            controller.decide(Verdict("Failed", "Stopped", f"The run was stopped: {reason}"))
        self._dirty = True

    def _timeout(self) -> float | None:
        """Milliseconds until something is due."""
        times = [controller.next_time() for controller in self._controllers]
        times += [pod.kill_at for pod in self._live.values()]
        times += [self._policy_due, self._write_again, self._look_due if self._live else None]
        due = min((time for time in times if time is not None), default=None)
        # Rounded up: a millisecond early would mean a round for nothing.
        return None if due is None else max(0.0, (due - time.monotonic()) * 1000 + 1)

    def _step(self) -> bool:
        """Does all that is due. True when the run has ended."""
        now = time.monotonic()
        if self._told_to_end:
            self._stop("its supervisor was told to end (SIGTERM)")
            self._told_to_end = False
        self._reap(now)
        for number, controller in enumerate(self._controllers):
            controller.expire(now)
            for index in controller.startable(now):
                self._start(number, index, now)
        self._settle(now)
        self._follow_policy(now)
        self._settle(now)
        for pod in self._live.values():
            if pod.kill_at is not None and now >= pod.kill_at:
                pod.kill()
            elif (reason := self._why_stopped(self._controllers[pod.job], pod.index)) is not None:
                self._dirty |= pod.stop(now, self._clock.text(now), reason)
        if now >= self._look_due:
            self._look_due = now + LOOK_SECONDS
            for log in self._logs.values():
                log.look(time.time())
        ended = all(controller.finished for controller in self._controllers)
        if self._dirty or (self._write_again is not None and now >= self._write_again):
            self._write(ended)
        return ended and not self._dirty

    def _settle(self, now: float) -> None:
        for controller in self._controllers:
            self._dirty |= controller.settle(now)

    @staticmethod
    def _why_stopped(controller: JobController, index: int) -> str | None:
        if controller.verdict is not None:
            return controller.verdict.reason
        if index >= controller.completions:
            return SCALED_DOWN
        return "Suspended" if controller.suspended else None

    def _reap(self, now: float) -> None:
        ended = [pod for pod in self._live.values() if pod.poll()]
        reap_orphans([pod.pid for pod in self._live.values()])
        if not ended:
            return
        kill_marked([pod.mark for pod in ended])
        for pod in ended:
            del self._live[pod.job, pod.index]
            self._logs.pop((pod.job, pod.index)).look(time.time())
            self._record_end(pod, now)

    def _record_end(self, pod: LivePod, now: float) -> None:
        pod.set_ended(self._clock.text(now))
        controller = self._controllers[pod.job]
        if pod.stopping and pod.object["status"]["phase"] != "Succeeded":
            controller.removed(pod.index)
        else:
            metadata = pod.object["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}"
            controller.ended(pod.index, name, pod.object["status"], now)
            if pod.exit_code:
                hostname = pod.object["spec"]["hostname"]
                self._failures[pod.job] = f"{hostname} ended with exit code {pod.exit_code}"
        self._dirty = True

    def _start(self, number: int, index: int, now: float) -> None:
        template = self._templates[number]
        attempt = self._attempts.get((number, index), 0)
        self._attempts[number, index] = attempt + 1
        pod = LivePod(number, index, template.pod(index, attempt, self._clock.text(now)), template.grace)
        self._pods.append(pod)
        self._dirty = True
        try:
            template.materialise(index, attempt)
            launch = template.launch(pod.object)
            self._warn_of_port(pod)
            pod.start(launch, template.container["name"], self._clock.text(now))
        except (OSError, MissingError) as error:
            pod.cannot_start(template.container["name"], str(error), self._clock.text(now))
            self._record_end(pod, now)
            return
        self._live[number, index] = pod
        growth = self._directory.growth(template.hostname(index), attempt)
        self._logs[number, index] = GrowthRecorder(launch.log, growth)

    def _warn_of_port(self, pod: LivePod) -> None:
        hostname = pod.object["spec"]["hostname"]
        for address, local in self._submission.addresses.items():
            if address.startswith(f"{hostname}.") and address not in self._metrics:
                port = int(local.rpartition(":")[2])
                if not ports.is_free(port):
                    pod.object["status"]["message"] = f"port {port} is in use by another program"

    def _follow_policy(self, now: float) -> None:
        """Carries out `run_end_rule`. Tasks cannot run without a supervisor, so cleanPolicy None has no
        effect on this machine; `preflight.left_out` says so.
        """
        roles = [self._role(number, now) for number in range(len(self._controllers))]
        primary = roles.pop(self._primary)
        decision = run_end_rule.decide(primary, roles, "Running", now, self._submission.settings)
        self._policy_due = decision.due
        for controller in self._controllers:
            if controller.name in decision.without_retry:
                controller.stop_restarting()
            for stop in decision.stops:
                if controller.name in stop.jobs:
                    controller.decide(Verdict("Failed", stop.reason, stop.message))

    def _role(self, number: int, now: float) -> run_end_rule.Role:
        """The Job as the policy sees it."""
        controller, template = self._controllers[number], self._templates[number]
        least = run_end_rule.least(elastic(template.job))
        pairs = zip(self._templates, self._controllers, strict=True)
        left = run_end_rule.left(
            template.role, {each.role: of.completions - len(of.failed_indexes) for each, of in pairs}
        )
        phase = Phase.SUSPENDED if controller.suspended else Phase.RUNNING
        if controller.finished and controller.verdict is not None:
            phase = Phase.SUCCEEDED if controller.verdict.type == "Complete" else Phase.FAILED
        return run_end_rule.Role(
            template.role,
            controller.name,
            phase,
            ended_at=controller.finished_at,
            leaves=leaves(template.job),
            idle=not controller.active,
            served=bool(controller.succeeded),
            needed=said_needed(template.job),
            stopped=controller.verdict is not None,
            last_failure=self._failures.get(number, ""),
            least=least,
            left=left,
            short_since=self._short.see(controller.name, is_so=left < least, now=now),
        )

    def _write(self, ended: bool) -> None:
        stopping = Counter(pod.job for pod in self._live.values() if pod.stopping)
        pairs = enumerate(zip(self._templates, self._controllers, strict=True))
        jobs = [
            job_view(template.job, controller, self._clock, stopping[number])
            for number, (template, controller) in pairs
        ]
        pods = [pod.object for pod in self._pods]
        # The uid first, to be found in what is left of a file that was cut off.
        about = {"submission": self._submission.uid, "ended": ended, "supervisor": os.getpid()}
        state = {**about, "jobs": jobs, "pods": pods}
        try:
            if ended:
                self._directory.free_reserve()
                self._set_expiry()
            self._directory.write_state(state)
        except FileNotFoundError:
            # The run's directory was removed by hand, so no command could stop the run any more.
            if not ended:
                self._stop("its directory is gone")
                self._write_again = time.monotonic()
            self._dirty = False
        except OSError as error:
            now = time.monotonic()
            self._cannot_write_since = self._cannot_write_since or now
            if ended and now - self._cannot_write_since >= _GIVE_UP_SECONDS:
                raise
            with contextlib.suppress(OSError):  # the log may be on the same disk
                os.write(sys.stderr.fileno(), f"cannot write the run's state: {error}\n".encode())
            self._write_again = now + _RETRY_SECONDS
        else:
            self._write_again = self._cannot_write_since = None
            self._dirty = False

    def _set_expiry(self) -> None:
        ttl = self._templates[self._primary].job["spec"].get("ttlSecondsAfterFinished")
        if ttl is not None:
            self._directory.set_expiry(time.time() + float(ttl))

    def _end(self) -> None:
        kill_children()
        with contextlib.suppress(OSError):
            metrics.targets_path(self._directory).unlink(missing_ok=True)
        remove_scratch(self._submission.uid)
