"""Metrics of a run's tasks: who reaches them, and how Prometheus finds them. A golden file has all of it."""

from __future__ import annotations

from typing import Any

from launcher.object_names import RUN_LABEL
from launcher.plan import rendering, topology
from launcher.plan_of_file import plan
from launcher.validation import loader

Object = dict[str, Any]
MONITORING: Object = {"port": 9090, "from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}


def loaded(**spec: Any) -> Any:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run"},
        "spec": {
            "strategy": "ParameterServer",
            "program": {"entrypoint": "a:B"},
            "worker": {"replicas": 2},
            "ps": {},
            "monitoring": MONITORING,
            **spec,
        },
    }
    return loader.check(document)


def objects(**spec: Any) -> dict[tuple[str, str], Object]:
    rendered = rendering.render(topology.build(loaded(**spec).cluster))
    return {(item["kind"], item["metadata"]["name"]): item for item in rendered}


def container(job: Object) -> Object:
    main_container: Object = job["spec"]["template"]["spec"]["containers"][0]
    return main_container


def test_a_scraper_reaches_the_metrics_and_no_tensorflow() -> None:
    own_pods = {"from": [{"podSelector": {"matchLabels": {RUN_LABEL: "run"}}}]}
    policy = objects()["NetworkPolicy", "run"]["spec"]
    scrapers = {"from": MONITORING["from"], "ports": [{"protocol": "TCP", "port": 9090}]}
    assert policy["ingress"] == [own_pods, scrapers]
    assert objects(monitoring=None)["NetworkPolicy", "run"]["spec"]["ingress"] == [own_pods]


def test_all_pods_of_a_namespace_are_an_empty_selector() -> None:
    everyone = {"port": 9090, "from": [{"podSelector": {}}, {"namespaceSelector": {}, "podSelector": {}}]}
    policy = objects(monitoring=everyone)["NetworkPolicy", "run"]["spec"]
    assert policy["ingress"][1]["from"] == everyone["from"]
    # As the annotation of the primary Job keeps it, too.
    kept = loaded(monitoring=everyone).cluster.model_dump(exclude_defaults=True, mode="json")
    assert kept["spec"]["monitoring"] == everyone


def test_what_serves_them_and_what_does_not() -> None:
    made = objects(ps={"command": ["sleep", "9"]})
    jobs = {name: container(item) for (kind, name), item in made.items() if kind == "Job"}
    named = {name: [port["name"] for port in each["ports"]] for name, each in jobs.items()}
    assert named == {
        "run-chief": ["tensorflow", "metrics"],
        "run-worker": ["tensorflow", "metrics"],
        "run-ps": ["tensorflow"],
    }
    addresses = {
        name: [each["value"] for each in job["env"] if each["name"] == "TF_LAUNCHER_METRICS"]
        for name, job in jobs.items()
    }
    assert addresses["run-worker"] == ["run-worker-$(TASK_INDEX).run:9090"]
    assert addresses["run-ps"] == []


def test_a_pod_monitor_finds_the_pods_of_the_run() -> None:
    assert ("PodMonitor", "run") not in objects()
    asked = {**MONITORING, "podMonitor": {"labels": {"release": "prometheus", RUN_LABEL: "other"}}}
    made = objects(monitoring=asked)
    monitor = made["PodMonitor", "run"]
    assert monitor["metadata"]["labels"].items() >= {"release": "prometheus", RUN_LABEL: "run"}.items()
    pods = made["Job", "run-worker"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pods.items()
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics"}]
    asked["podMonitor"]["intervalSeconds"] = 15
    (scrape,) = objects(monitoring=asked)["PodMonitor", "run"]["spec"]["podMetricsEndpoints"]
    assert scrape == {"port": "metrics", "interval": "15s"}


def test_each_task_has_an_address_for_this_machine() -> None:
    addresses = plan(loaded()).addresses
    assert {"run-worker-1.run:2222", "run-worker-1.run:9090", "run-chief-0.run:9090"} <= {*addresses}
    assert not [each for each in plan(loaded(monitoring=None)).addresses if each.endswith(":9090")]
