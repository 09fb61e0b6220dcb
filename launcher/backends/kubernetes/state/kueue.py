"""Why Kueue does not admit a run, and requests to Kueue about a run.

Source: https://kueue.sigs.k8s.io/docs/concepts/workload/, https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
"""

from __future__ import annotations

from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.state.run_state import SlimWorkload
from launcher.object_names import GROUP_LABEL
from launcher.status import condition


def slim_workload(workload: Object) -> SlimWorkload:
    """What of a Workload the state of its run needs."""
    return {"metadata": {"uid": workload["metadata"]["uid"]}, "words": _words(workload)}


def _words(workload: Object) -> str:
    if condition(workload, "Admitted", "Finished") is not None:
        return ""
    if workload["spec"].get("active") is False:
        return "it is held back, and `resume` starts it again"
    if condition(workload, "QuotaReserved") is not None:
        return "its quota is reserved, and admission checks are not done"
    conditions = (workload.get("status") or {}).get("conditions") or ()
    reason = next(
        (str(each.get("message") or "") for each in conditions if each["type"] == "QuotaReserved"), ""
    )
    evicted = condition(workload, "Evicted")
    if evicted is not None and (message := str(evicted.get("message") or "")) != reason:
        reason = f"it was evicted ({evicted.get('reason')}): {message}; {reason}".rstrip("; ")
    return reason or "Kueue has not said anything about it yet"


def free_quota(client: Client, namespace: str, group: str) -> str:
    """Tells Kueue that no pod of the group will be made again, so that its share of the quota comes free: it
    knows by itself only of a run all of whose tasks have succeeded. Returns what stood in the way.
    """
    try:
        workloads, _ = client.list("Workload", namespace, fields=f"metadata.name={group}")
        if all(condition(workload, "Finished") is not None for workload in workloads):
            return ""
        pods, _ = client.list("Pod", namespace, f"{GROUP_LABEL}={group}", metadata_only=True)
        for pod in pods[:1]:
            patch = {"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}}
            client.merge("Pod", namespace, pod["metadata"]["name"], patch)
    except ApiError as error:
        if error.status == 404:
            return ""
        if error.no_right:
            return f"Kueue keeps the run's share of the quota until it is deleted: {error.message}"
        raise
    return ""


def set_active(client: Client, namespace: str, selectors: tuple[str, str], *, active: bool) -> bool:
    """Has Kueue hold the run back, stopping it, or admit it again. False where there is no Workload to say it
    to, or we may not.
    """
    try:
        workloads, _ = client.list("Workload", namespace, *selectors)
        for workload in workloads:
            patch = {"spec": {"active": active}}
            client.merge("Workload", namespace, workload["metadata"]["name"], patch)
    except ApiError as error:
        if error.status == 404 or error.no_right:
            return False
        raise
    return bool(workloads)
