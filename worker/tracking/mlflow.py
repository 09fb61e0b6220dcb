"""The few calls of MLflow's REST API that a run needs. The standard library makes them: the image may have no
MLflow, and the supervisor imports nothing large.

https://mlflow.org/docs/latest/api_reference/rest-api.html
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final

RUN_TAG: Final = "tf-launcher.run_id"
"""The tag by which the tasks of a run, and its later attempts, find MLflow's run."""
MOST_METRICS: Final = 1000
"""In one request: a limit of MLflow's."""
_MOST_PARAMETERS: Final = 100
_LONGEST_PARAMETER: Final = 500
"""Letters: the limit of MLflow's before 2.8. Later ones take 6,000."""
_ANSWER_SECONDS: Final = 15.0
"""A server that was just started needs several for its first answer."""


class TrackerError(Exception):
    """The server did not do what it was asked for. `again`: it may do it later."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the password to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


@contextlib.contextmanager
def _as_tracker_error() -> Iterator[None]:
    """Whatever listens at the address: it, or what is between, may answer anything."""
    try:
        yield
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise TrackerError(getattr(reason, "strerror", None) or str(reason), again=True) from None
    except (HTTPException, ValueError, LookupError, TypeError, AttributeError):
        raise TrackerError("what it answers is nothing of MLflow's", again=True) from None


class Server:
    """MLflow's server at `uri`, with the credentials in MLflow's own variables. Each method asks it at most
    a few times, with a limit of seconds for each answer, and raises TrackerError.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        self._opener = urllib.request.build_opener(_NoRedirect)

    @_as_tracker_error()
    def find(self, experiment: str, run_id: str) -> str | None:
        """Returns the id of MLflow's run that has this tag, None where there is none yet."""
        number = self._experiment(experiment)
        if number is None:
            return None
        wanted = {"experiment_ids": [number], "filter": f"tags.`{RUN_TAG}` = '{run_id}'", "max_results": 1}
        runs = self._post("runs/search", wanted).get("runs") or []
        return str(runs[0]["info"]["run_id"]) if runs else None

    @_as_tracker_error()
    def create(self, experiment: str, name: str, tags: Mapping[str, str], milliseconds: int) -> str:
        """Creates a run, and the experiment where it is missing. Returns the run's id."""
        number = self._experiment(experiment)
        if number is None:
            number = self._post("experiments/create", {"name": experiment})["experiment_id"]
        run = {"experiment_id": number, "run_name": name, "start_time": milliseconds, "tags": _pairs(tags)}
        return str(self._post("runs/create", run)["run"]["info"]["run_id"])

    @_as_tracker_error()
    def last_steps(self, run: str) -> dict[str, int]:
        """Returns the last step of each metric that the run has."""
        data = self._ask(f"runs/get?{urllib.parse.urlencode({'run_id': run})}")["run"]["data"]
        return {each["key"]: int(each.get("step", 0)) for each in data.get("metrics", ())}

    @_as_tracker_error()
    def log(
        self,
        run: str,
        metrics: Sequence[Mapping[str, Any]] = (),
        tags: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Logs at most MOST_METRICS metrics; of the parameters the first 100."""
        cut = {name: str(value)[:_LONGEST_PARAMETER] for name, value in (parameters or {}).items()}
        document = {"run_id": run, "metrics": list(metrics), "tags": _pairs(tags or {})}
        self._post("runs/log-batch", {**document, "params": _pairs(cut)[:_MOST_PARAMETERS]})

    @_as_tracker_error()
    def update(self, run: str, status: str, milliseconds: int | None = None) -> None:
        """Sets the run's status, such as FINISHED, and when it ended."""
        end = {} if milliseconds is None else {"end_time": milliseconds}
        self._post("runs/update", {"run_id": run, "status": status, **end})

    def _experiment(self, name: str) -> str | None:
        try:
            query = urllib.parse.urlencode({"experiment_name": name})
            answer = self._ask(f"experiments/get-by-name?{query}")
        except _MissingError:
            return None
        return str(answer["experiment"]["experiment_id"])

    def _post(self, path: str, document: Mapping[str, Any]) -> Any:
        return self._ask(path, json.dumps(document).encode())

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        headers = {"Content-Type": "application/json", **_authorization()}
        request = urllib.request.Request(f"{self._uri}/api/2.0/mlflow/{path}", body, headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(10_000)) from None


class _MissingError(TrackerError):
    pass


def _refusal(status: int, body: bytes) -> TrackerError:
    try:
        document = json.loads(body)
        code, message = document["error_code"], document["message"].splitlines()[0]
    except (ValueError, LookupError, TypeError, AttributeError):
        code, message = "", f"it answers with status {status}"
    kind = _MissingError if code == "RESOURCE_DOES_NOT_EXIST" else TrackerError
    return kind(message[:300], again=status >= 500 or status in (408, 429))


def _authorization() -> dict[str, str]:
    """Returns the header of the credentials in the variables that MLflow's own client reads."""
    token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
    if user:
        both = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
        return {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in values.items()]
