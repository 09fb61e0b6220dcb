"""The counts of `make bench-submit`, and the objects that it sends to an operator."""

from benchmarks import apiserver, starters

METRICS = """
# HELP apiserver_request_total [STABLE] Counter of apiserver requests
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",verb="POST"} 7
apiserver_request_total{code="201",component="",dry_run="All",group="",resource="pods",verb="APPLY"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",verb="LIST"} 3
apiserver_request_total{code="200",component="",dry_run="",group="",subresource="/readyz",verb="GET"} 1
apiserver_request_body_size_bytes_sum{group="",resource="pods",verb="create"} 1.5e+06
apiserver_request_body_size_bytes_count{group="",resource="pods",verb="create"} 7
apiserver_response_sizes_sum{component="apiserver",group="",resource="pods",verb="POST"} 2000
apiserver_response_sizes_sum{component="apiserver",group="",resource="pods",verb="WATCH"} 900000
apiserver_response_sizes_bucket{component="apiserver",group="",resource="pods",verb="POST",le="1000"} 5
apiserver_watch_events_sizes_sum{group="",resource="pods",version="v1"} 30000
"""


def test_an_api_server_tells_what_it_has_done() -> None:
    cost = apiserver.counted(METRICS)
    assert cost == apiserver.Cost(writes=7, reads=6, received=1_500_000, sent=32_000)
    assert cost.since(apiserver.Cost(5, 6, 500_000, 2_000)) == (2, 0, 1_000_000, 30_000)


def test_a_tfjob_has_the_same_pods() -> None:
    plan = starters.planned("run", 3, "vision")
    whole, *others = starters.tfjob(plan)
    assert {"Job", "Service"}.isdisjoint(item["kind"] for item in others)
    replicas = whole["spec"]["tfReplicaSpecs"]
    assert {role: each["replicas"] for role, each in replicas.items()} == {
        "Chief": 1,
        "Worker": 3,
        "PS": 1,
        "Evaluator": 1,
    }
    job = next(item for item in plan.objects if item["metadata"]["name"] == "run-worker")
    ours = job["spec"]["template"]["spec"]["containers"][0]
    (theirs,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert {**theirs, "env": ours["env"], "ports": ours["ports"]} == ours
    assert [each for each in ours["env"] if each not in theirs["env"]] == [
        each for each in ours["env"] if each["name"] == "TF_CONFIG"
    ]


def test_a_list_that_no_environment_holds_is_not_tried() -> None:
    peer = starters.Starter("TFJob", "vision", starters.tfjob)
    assert peer.impossible("run", 1_000) == ""
    assert "cannot start" in peer.impossible("run", 5_000)
