"""Rules of the replay of a trace through `route` in virtual time."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.errors import SpecInvalid
from corral.domain.service import ScaleRule
from corral.perf.serving import BatchLimits, Load, served
from corral.plan.serve.plan import ServeRequest, plan_serve
from corral.plan.serve.roles import estimate_roles
from corral.plan.service_replay.modelled_steps import ModelledSteps
from corral.plan.service_replay.prefix_cache import PrefixCache, pooled_hit_share
from corral.plan.service_replay.replay import ReplayedService, replay_trace
from corral.plan.service_replay.replay_plan import ReplayRequest, plan_replay
from corral.plan.service_replay.replay_report import replay_report
from corral.plan.service_replay.trace_outcome import TraceOutcome
from corral.plan.service_replay.trace_request import TraceRequest, summary_of

LLAMA = ServeRequest("llama-3.1-8b", qps=5, input=1000, output=200, gpu="h100-sxm")


class PlainSteps:
    """Engine with 8,000 prompt tokens a second and 20 ms between tokens."""

    def decode_seconds(self, running: int, context: float) -> float:
        return 0.02

    def mixed_seconds(
        self,
        prompt: int,
        prompt_context: float,
        ends: int,
        running: int,
        context: float,
    ) -> float:
        return prompt / 8000.0 + (0.02 if running else 0.0)


def service(**more: Any) -> ReplayedService:
    fields: dict[str, Any] = {"least": 1, "most": 1, "first": 1, **more}
    return ReplayedService(
        times=PlainSteps(), limits=BatchLimits(), cache_tokens=1_000_000, **fields
    )


def poisson(rate: float, count: int, prompt: int, output: int) -> list[TraceRequest]:
    chance = Random(7)
    at = 0.0
    requests = []
    for _ in range(count):
        at += chance.expovariate(rate)
        requests.append(TraceRequest(at, prompt, output))
    return requests


def test_a_lone_request_takes_its_prefill_and_then_one_step_a_token() -> None:
    outcome = replay_trace(service(), [TraceRequest(0.0, 800, 11)])
    assert list(outcome.ttft) == pytest.approx([0.1])
    assert [(gap.seconds, gap.tokens) for gap in outcome.gaps] == [(0.02, 10)]


def test_a_prompt_delays_the_tokens_of_a_running_request() -> None:
    requests = [TraceRequest(0.0, 8, 101), TraceRequest(1.0, 8000, 2)]
    outcome = replay_trace(service(), requests)
    assert outcome.gaps[-1].seconds == pytest.approx(8000 / 8000 + 0.02, abs=0.01)
    assert 0.0 < outcome.mixed_share < 0.05


def test_steady_latencies_agree_with_the_closed_form_of_the_planner() -> None:
    fleet = plan_serve(LLAMA).best
    replica = fleet.replica
    rate = 0.5 * fleet.most_rate
    for_replay = ReplayedService(
        times=ModelledSteps(replica),
        limits=fleet.limits,
        cache_tokens=400_000,
        request_seconds=replica.engine.request_seconds,
    )
    outcome = replay_trace(for_replay, poisson(rate, 3000, 1000, 200))
    load = Load(rate=rate, prompt=1000, output=200)
    expected = served(replica, load, fleet.limits)
    ttft = expected.ttft_quantile(0.5)
    assert outcome.ttft_quantile(0.5) == pytest.approx(ttft, rel=0.15)
    itl = expected.itl_quantile(0.5)
    assert outcome.itl_quantile(0.5) == pytest.approx(itl, rel=0.10)
    assert outcome.refused == 0


requests_of_a_trace = st.lists(
    st.builds(
        TraceRequest,
        st.floats(0, 120),
        st.integers(1, 20_000),
        st.integers(1, 300),
        st.lists(st.integers(0, 5), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=40,
).map(lambda requests: sorted(requests, key=lambda request: request.arrival))


@settings(max_examples=40, deadline=None)
@given(
    requests=requests_of_a_trace,
    least=st.integers(0, 2),
    queue=st.floats(0.5, 8),
    cache_tokens=st.integers(1000, 100_000),
)
def test_each_request_has_exactly_one_end(
    requests: list[TraceRequest], least: int, queue: float, cache_tokens: int
) -> None:
    replayed = service(
        least=least, first=least, most=4, scale=ScaleRule(queue=queue), start_seconds=5
    )
    outcome = replay_trace(replace(replayed, cache_tokens=cache_tokens), requests)
    ends = outcome.answered + outcome.refused + outcome.too_long
    assert ends == outcome.requests == len(requests)
    gaps = sum(gap.tokens for gap in outcome.gaps)
    assert gaps == outcome.output_tokens - outcome.answered
    assert 0.0 <= outcome.hit_share <= 1.0
    assert all(least <= sample.wanted <= 4 for sample in outcome.samples)
    assert min(outcome.ttft, default=1.0) > 0.0


def test_replicas_follow_the_load_and_its_reasons_are_recorded() -> None:
    requests = poisson(0.2, 20, 800, 50)
    burst = [replace(each, arrival=100 + each.arrival / 100) for each in requests * 20]
    burst.sort(key=lambda request: request.arrival)
    quiet = [TraceRequest(1500.0, 800, 50)]
    scaled = service(most=6, scale=ScaleRule(queue=4), start_seconds=20)
    outcome = replay_trace(scaled, [*requests, *burst, *quiet])
    assert outcome.most_replicas > 1
    assert outcome.samples[-1].wanted == 1
    assert [event.wanted > event.before for event in outcome.events][0]
    assert "requests outstanding" in outcome.events[0].reason
    assert outcome.events[-1].cause == "not_needed"
    assert outcome.replica_seconds < 6 * outcome.seconds


def test_a_service_without_replicas_starts_one_for_many_waiting_requests() -> None:
    burst = [TraceRequest(10.0, 800, 20) for _ in range(50)]
    from_zero = service(least=0, first=0, most=8, start_seconds=30)
    outcome = replay_trace(from_zero, burst)
    assert outcome.events[0].cause == "from_zero"
    assert outcome.events[0].wanted == 1
    assert outcome.answered == 50
    assert outcome.ttft_quantile(0.0) > 30


def test_a_request_that_waits_for_longer_than_its_deadline_is_refused() -> None:
    slow = service(least=0, first=0, most=1, start_seconds=90)
    outcome = replay_trace(slow, [TraceRequest(5.0, 800, 20)])
    assert (outcome.refused, outcome.answered) == (1, 0)
    assert outcome.late_share(1e9) == 1.0


def test_a_request_longer_than_the_cache_is_refused_and_counted() -> None:
    outcome = replay_trace(
        service(), [TraceRequest(0.0, 999_990, 20), TraceRequest(1.0, 80, 2)]
    )
    assert (outcome.too_long, outcome.answered) == (1, 1)


def test_prompts_that_share_blocks_go_where_these_are_cached() -> None:
    chance = Random(3)
    families = [tuple(range(9 * family, 9 * family + 8)) for family in range(6)]
    requests = [
        TraceRequest(number * 0.2, 8 * 512 + 100, 10, chance.choice(families))
        for number in range(400)
    ]
    outcome = replay_trace(
        replace(service(least=3, first=3, most=3), cache_tokens=16 * 512 + 8192),
        requests,
    )
    prompts = [(request.prompt_tokens, request.blocks) for request in requests]
    pooled = pooled_hit_share(prompts, 3 * 32, 512)
    assert outcome.hit_share >= 0.9 * pooled > 0.8


def test_the_cache_drops_leaves_before_their_parents() -> None:
    cache = PrefixCache(3)
    assert cache.prefill((1, 2, 3)) == 0
    assert cache.prefill((1, 2, 4)) == 2
    assert cache.prefill((1, 2, 3)) == 2


def test_shared_tokens_are_cached_in_every_replica() -> None:
    outcome = replay_trace(
        service(shared_tokens=600), [TraceRequest(0.0, 800, 2), TraceRequest(9, 400, 2)]
    )
    assert outcome.ttft[-1] == pytest.approx(200 / 8000)
    assert outcome.hit_share == pytest.approx((600 + 399) / 1200)


def plan(**more: Any) -> Any:
    request = ReplayRequest(serve=replace(LLAMA, qps=0.0, input=0, output=0), **more)
    return plan_replay(request, poisson(5.0, 900, 1000, 100))


def test_a_plan_has_costs_of_the_hours_that_replicas_had() -> None:
    replayed = plan(replicas=(2, 2))
    outcome: TraceOutcome = replayed.outcome
    assert replayed.gpu_hours == pytest.approx(2 * outcome.seconds / 3600)
    hourly = replayed.fleet.usd_per_hour / replayed.fleet.replicas
    assert replayed.usd == pytest.approx(replayed.gpu_hours * hourly)
    assert outcome.mean_replicas == pytest.approx(2.0)


def test_each_replica_holds_the_longest_request() -> None:
    requests = [*poisson(2.0, 200, 500, 50), TraceRequest(200.0, 600_000, 10)]
    serve = replace(LLAMA, model="llama-3.1-70b")
    replayed = plan_replay(ReplayRequest(serve=serve), requests)
    assert replayed.fleet.replica.gpus > plan_serve(serve).best.replica.gpus
    assert replayed.outcome.too_long == 0


def test_a_report_quotes_measured_errors_and_compares_two_rules() -> None:
    first = plan(scale_text="{queue: 4}", scale=ScaleRule(queue=4))
    second = plan(scale_text="{rps: 2}", scale=ScaleRule(rps=2))
    report = replay_report(first, second)
    assert report.answer("TTFT p90").band == pytest.approx(0.43, abs=0.3)
    table = report.tables[0]
    assert [column.name for column in table.columns[2:]] == [
        "NVIDIA H100 SXM 80GB, scale: {queue: 4}",
        "NVIDIA H100 SXM 80GB, scale: {rps: 2}",
    ]
    data = report.as_data()["data"]["replays"]
    assert [each["scale"] for each in data] == ["{queue: 4}", "{rps: 2}"]
    assert len(data[0]["replicas"]) == len(first.outcome.samples)


def test_shared_tokens_contradict_hash_ids() -> None:
    requests = [TraceRequest(0.0, 600, 10, (1,)), TraceRequest(1.0, 600, 10)]
    request = ReplayRequest(serve=replace(LLAMA, shared=100))
    with pytest.raises(SpecInvalid, match="hash_ids"):
        plan_replay(request, requests)


def test_roles_pay_where_prompts_break_the_target_between_tokens() -> None:
    fleet = plan_serve(LLAMA).best
    load = Load(rate=120.0, prompt=1000, output=200)
    tight = estimate_roles(fleet.replica, fleet.limits, load, 8, None, 0.02)
    assert tight is not None
    assert tight.pays
    assert tight.itl <= 0.02 < tight.mixed_itl
    assert tight.ttft > tight.transfer_seconds > 0
    loose = estimate_roles(fleet.replica, fleet.limits, load, 8, 10.0, 1.0)
    assert loose is not None
    assert not loose.pays
    assert estimate_roles(fleet.replica, fleet.limits, load, 1) is None


def test_a_summary_has_the_means_of_the_trace() -> None:
    trace = summary_of([TraceRequest(1.0, 10, 20, (1,)), TraceRequest(5.0, 30, 40)])
    assert (trace.rate, trace.prompt_tokens, trace.longest) == (0.5, 20.0, 70)
    assert trace.has_blocks
    with pytest.raises(ValueError, match="at least one"):
        summary_of([])
