"""Demand of batches, which is no part of the demand of other requests."""

from typing import Any

from corral.control.services.batch_reports import STALE_SECONDS, BatchReports
from corral.control.services.counter_sums import CounterSums
from corral.control.services.replica_demand import ReplicaDemand
from corral.domain.batch import BatchId
from corral.domain.ids import ServiceName
from corral.route.batch_demand import BatchWork
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedProcess,
    ReportedRevision,
    ReportedService,
    ReportedTokens,
)
from tests.control.services import service

CHAT = ServiceName("chat")
B1 = BatchId("b1")


def report(**service: Any) -> CountersReport:
    reported = ReportedService(**service)
    process = ReportedProcess(process="process-1", services={"chat": reported})
    return CountersReport(processes=(process,))


def test_requests_and_tokens_of_batches_are_no_load_of_the_service() -> None:
    sums, demand = CounterSums(), ReplicaDemand()
    sums.expect("own", 0.0)
    for second in (1.0, 2.0, 3.0):
        count = int(second)
        tokens = {
            "ann/t1": ReportedTokens(prompt=100 * count, output=10 * count),
            "ann/j1.1/batch": ReportedTokens(prompt=9000 * count, output=900 * count),
        }
        sums.take(
            "own",
            report(
                arrivals=51 * count,
                in_flight=52,
                queued=31,
                batch_arrivals=50 * count,
                batch_in_flight=50,
                batch_queued=30,
                revisions=(ReportedRevision(revision=1, tokens=tokens),),
            ),
            second,
        )
        under_way = sums.under_way("chat", second)
        assert under_way is not None
        demand.take(service(), sums.services["chat"], under_way, second)
    history = demand.demand.history
    assert history is not None
    rate = history.seconds[-1]
    assert (rate.requests, rate.new_tokens, rate.output_tokens) == (1.0, 100.0, 10.0)
    assert rate.outstanding == 2.0


def test_the_time_that_is_left_to_a_batch_goes_by_until_it_is_over() -> None:
    reports = BatchReports()
    work = BatchWork(tokens_left=100.0, seconds_left=60.0)
    reports.take(B1, CHAT, work, 10.0)
    [later] = reports.of(CHAT, 25.0)
    assert (later.tokens_left, later.seconds_left) == (100.0, 45.0)
    assert reports.of(ServiceName("other"), 25.0) == []
    assert reports.of(CHAT, 10.0 + STALE_SECONDS) == []  # its job does not run
    reports.take(B1, CHAT, BatchWork(tokens_left=0.0, seconds_left=30.0), 30.0)
    assert reports.of(CHAT, 30.0) == []
