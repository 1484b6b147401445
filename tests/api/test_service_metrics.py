"""Metrics of services for Prometheus: what gateways count, targets and canaries."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as families,
)

from corral.control.services.counter_sums import CounterSums
from corral.domain.service import ScaleRule
from corral.wire.gateway_counters import ReportedRevision, ReportedService
from tests.api.heads import Head, serving
from tests.control.services import BOUNDS, counted, report
from tests.services import apply_service, service_spec


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as it:
        yield it


def values(head: Head) -> dict[str, float]:
    """The series of services, by their name and labels."""
    with head.http("vera") as http:
        lines = http.get("/metrics").text.splitlines()
    series = (line.rsplit(" ", 1) for line in lines if 'service="' in line)
    return {name: float(value) for name, value in series}


def of_chat(name: str, labels: str = "") -> str:
    return f'{name}{{{labels}service="chat"}}'


def take(head: Head, chat: ReportedService) -> None:
    traffic, now = head.control.traffic, head.control.serving_seconds()
    traffic.started_gateway(now)
    traffic.take("own", report(chat=chat), now)


def test_gateways_counts_have_the_names_of_vllm(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0))
    chat = counted(
        4, tokens={"ann/t1": (30, 12, 9)}, ttft=(1, 2, 0, 1), under_way={"j1_1": 3},
        queued=2,
    )  # fmt: skip
    take(head, chat)
    series = values(head)
    labels = 'model_name="chat-model",'
    assert series[of_chat("vllm:prompt_tokens_total", labels)] == 30
    assert series[of_chat("vllm:generation_tokens_total", labels)] == 9
    assert series[of_chat("vllm:prefix_cache_hits_total", labels)] == 12
    assert series[of_chat("vllm:num_requests_running", labels)] == 3
    assert series[of_chat("vllm:num_requests_waiting", labels)] == 2
    name = "vllm:time_to_first_token_seconds"
    bounds = [*map(str, BOUNDS), "+Inf"]
    buckets = [
        series[f'{name}_bucket{{le="{bound}",model_name="chat-model",service="chat"}}']
        for bound in bounds
    ]
    assert buckets == [1, 3, 3, 4]
    assert series[of_chat(f"{name}_count", labels)] == 4
    assert series[of_chat("corral_service_gateway_up")] == 1


def test_without_a_report_no_gateway_is_up_and_no_latency_is_known(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0))
    series = values(head)
    assert series[of_chat("corral_service_gateway_up")] == 0
    assert not any("time_to_first_token" in name for name in series)


def test_refusals_of_the_gateway_are_not_errors_of_replicas(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0))
    unrouted = ReportedRevision(revision=None, requests={429: 3, 503: 2, 404: 7})
    chat = counted(10, failed=1)
    take(
        head,
        msgspec.structs.replace(
            chat,
            revisions=(*chat.revisions, unrouted),
            ejections=4,
            retries=9,
            fallback_requests={200: 6},
        ),
    )
    series = values(head)
    assert series[of_chat("corral_service_refused_requests_total")] == 5
    assert series[of_chat("corral_service_fallback_requests_total")] == 6
    for event, count in (("ejections", 4), ("retries", 9), ("streams_lost", 0)):
        labels = f'event="{event}",'
        assert series[of_chat("corral_service_gateway_events_total", labels)] == count


def test_events_of_gateways_are_added_once() -> None:
    sums = CounterSums()
    sums.expect("own", 0.0)
    for now, ejections in ((1.0, 2), (2.0, 2), (3.0, 5)):
        chat = ReportedService(ejections=ejections, fallback_requests={200: ejections})
        sums.take("own", report(chat=chat), now)
    assert sums.services["chat"].events["ejections"] == 5
    assert sums.services["chat"].fallback_requests == 5


def test_targets_and_the_state_of_a_canary_are_metrics(head: Head) -> None:
    scale = ScaleRule(ttft_p90_seconds=0.5)
    service = apply_service(head, service_spec(min_replicas=0, scale=scale))
    trial = replace(
        service.with_new_revision(service.spec, service.owner, 1.0), trial=2
    )
    for changed, state in (
        (service, ""),
        (trial, "trial"),
        (replace(trial, passed=True), "replacing"),
        (replace(trial, trial=None, turned_back=2), "turned_back"),
        (replace(trial, trial=None, current=2, turned_back=1), ""),
    ):
        head.control.world.services[service.name] = changed
        series = values(head)
        for name in ("trial", "replacing", "turned_back"):
            canary = f'corral_service_canary{{service="chat",state="{name}"}}'
            assert series[canary] == float(name == state)
    target = 'corral_service_latency_target_seconds{kind="ttft_p90",service="chat"}'
    assert series[target] == 0.5
    assert target.replace("ttft", "itl") not in series


def test_the_text_is_valid_openmetrics(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0))
    take(head, counted(4, ttft=(1, 2, 0, 1)))
    accepts = {"Accept": "application/openmetrics-text"}
    with head.http("vera") as http:
        text = http.get("/metrics", headers=accepts).text
    names = {family.name for family in families(text)}  # type: ignore[no-untyped-call]
    assert {"vllm:time_to_first_token_seconds", "vllm:prompt_tokens"} <= names
