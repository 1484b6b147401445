"""Tokens reach the ledger exactly once, whatever is killed and restarted."""

import asyncio
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.control.services import ServiceTraffic
from corral.control.services.token_ledger import (
    COMMIT_SECONDS,
    KEEP_SECONDS,
    TokenLedger,
)
from corral.control.token_cost import tokens_since
from corral.domain.gateway_counts import CallerCounts
from corral.domain.ids import ClusterId, QueueName, ServiceName, TokenId, UserName
from corral.domain.job import JobSpec
from corral.domain.ledger import day_of
from corral.domain.service import Service, ServiceState
from corral.domain.units import DAY_SECONDS
from corral.domain.world import Changes, World
from corral.reconcile import Now
from corral.store.memory_store import MemoryStore
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedProcess,
    ReportedRevision,
    ReportedService,
    ReportedTokens,
)
from tests.control.services import service, spec

CHAT = ServiceName("chat")
Sums = Counter[tuple[str, str]]  # by user and name of the amount


NAMES = (
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "fallback_tokens",
    "batch_tokens",
)


class GatewayProcess:
    """A gateway whose counters are in its memory, and now and then in its file."""

    def __init__(self, number: int) -> None:
        self.id = f"process-{number}"
        self.counts: dict[str, CallerCounts] = {}
        self.file: CountersReport | None = None

    def serve(self, caller: str, counts: CallerCounts) -> None:
        self.counts[caller] = self.counts.get(caller, CallerCounts()).plus(counts)

    def report(self) -> CountersReport:
        tokens = {
            caller: ReportedTokens(one.prompt, one.cached, one.output, one.requests)
            for caller, one in self.counts.items()
        }
        revision = ReportedRevision(revision=1, tokens=tokens)
        fallback = {
            caller: ReportedTokens(prompt=one.fallback)
            for caller, one in self.counts.items()
            if one.fallback
        }
        chat = ReportedService(revisions=(revision,), fallback=fallback)
        return CountersReport(
            processes=(ReportedProcess(process=self.id, services={"chat": chat}),)
        )


class Cluster:
    """A store, a head that may die, and a gateway that may be killed."""

    def __init__(self, *services: Service) -> None:
        self.store = MemoryStore()
        self.now = 1000.0
        self.processes = [GatewayProcess(0)]
        self.dead_files: list[CountersReport] = []
        self.services = services or (service(),)
        self.lead()
        self.commit(Changes(services=self.services))
        self.world.apply(Changes(services=self.services))

    @property
    def gateway(self) -> GatewayProcess:
        return self.processes[-1]

    def lead(self) -> None:
        self.world: World = asyncio.run(self.store.lead())
        self.traffic = ServiceTraffic()

    def commit(self, changes: Changes) -> None:
        asyncio.run(self.store.commit(self.world.term, changes))

    def second(self, seconds: float = 1.0) -> None:
        """The head reads the gateway's counters and the files of dead processes."""
        self.now += seconds
        self.traffic.take("own", self.gateway.report(), self.now)
        for file in self.dead_files:
            self.traffic.take_kept(file, self.now)

    def tick(self, *, is_lost: bool = False, is_unknown: bool = False) -> None:
        """One pass of the loop. `is_lost`: the commit fails; `is_unknown`: it is
        written, but the head does not get its answer and loads the world again."""
        changes = self.traffic.with_tokens(
            Changes(), self.world, Now(wall=self.now, serving=self.now)
        )
        if not changes or is_lost:
            return
        self.commit(changes)
        if is_unknown:
            self.world = asyncio.run(self.store.lead())
        else:
            self.world.apply(changes)

    def kill_gateway(self) -> None:
        """Only what is in its file is left of its counters."""
        if self.gateway.file is not None:
            self.dead_files.append(self.gateway.file)
        self.processes.append(GatewayProcess(len(self.processes)))

    def settle(self) -> None:
        for _ in range(2):
            self.second(COMMIT_SECONDS)
            self.tick()

    def month_tokens(self) -> dict[TokenId, int]:
        return self.traffic.tokens.month_tokens(self.world, self.now)

    def ledger(self) -> Sums:
        rows = asyncio.run(self.store.days(first=0, last=99_999))
        sums: Sums = Counter()
        for row in rows:
            for name in NAMES:
                sums[row.user, name] += int(getattr(row.amounts, name))
        return +sums


def sums_of(counts: dict[str, CallerCounts]) -> Sums:
    sums: Sums = Counter()
    for caller, one in counts.items():
        for name, count in zip(NAMES, one, strict=True):
            sums[caller.partition("/")[0], name] += count
    return +sums


def key_tokens_of(processes: list[GatewayProcess]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for process in processes:
        for caller, counts in process.counts.items():
            sums[caller.split("/")[1]] += counts.tokens + counts.fallback
    return dict(+sums)


calls = st.tuples(
    st.sampled_from(["ann/t1", "ann/t2", "bob/t3"]),
    st.builds(
        lambda prompt, cached, output, fallback: CallerCounts(
            1, prompt, min(cached, prompt), output, fallback
        ),
        st.integers(0, 900),
        st.integers(0, 900),
        st.integers(0, 90),
        st.just(0) | st.integers(0, 900),
    ),
)
steps = st.one_of(
    calls,
    st.sampled_from(
        [
            *("read", "read", "tick", "tick", "write", "write", "wait"),
            *("kill gateway", "kill head", "lose commit", "unknown commit"),
        ]
    ),
)


@settings(max_examples=150, deadline=None)
@given(story=st.lists(steps, max_size=60))
def test_tokens_are_added_exactly_once_across_kills_of_heads_and_gateways(
    story: list[object],
) -> None:
    cluster = Cluster()
    for step in story:
        gateway = cluster.gateway
        match step:
            case (str() as caller, CallerCounts() as counts):
                gateway.serve(caller, counts)
            case "read":
                cluster.second()
            case "tick":
                cluster.tick()
            case "write":
                gateway.file = gateway.report()
            case "wait":
                cluster.now += COMMIT_SECONDS
            case "kill gateway":
                gateway.file = gateway.report()  # its end is right after a write
                cluster.kill_gateway()
            case "kill head":
                cluster.lead()
            case "lose commit":
                cluster.tick(is_lost=True)
            case "unknown commit":
                cluster.tick(is_unknown=True)
        served = sum((sums_of(one.counts) for one in cluster.processes), Counter())
        assert all(cluster.ledger()[key] <= served[key] for key in cluster.ledger())
    cluster.settle()
    served = sum((sums_of(one.counts) for one in cluster.processes), Counter())
    assert cluster.ledger() == served
    assert cluster.month_tokens() == key_tokens_of(cluster.processes)


def test_the_tokens_of_a_key_begin_anew_with_each_month_and_survive_a_head() -> None:
    cluster = Cluster()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 10, 0, 5))
    cluster.second()
    assert cluster.month_tokens() == {"t1": 15}, "before any commit"
    cluster.settle()
    cluster.lead()
    assert cluster.month_tokens() == {"t1": 15}
    cluster.now += 28 * DAY_SECONDS  # in the same month
    cluster.gateway.serve("ann/t1/batch", CallerCounts(1, 8, 0, 2))
    cluster.settle()
    assert cluster.month_tokens() == {"t1": 15 + 5}, "one of a batch counts half"
    cluster.now += 4 * DAY_SECONDS
    assert cluster.month_tokens() == {}
    cluster.gateway.serve("ann/t1", CallerCounts(1, 1, 0, 1))
    cluster.settle()
    assert cluster.month_tokens() == {"t1": 2}


def test_a_killed_gateway_loses_only_what_it_had_not_written() -> None:
    cluster = Cluster()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 10, 0, 5))
    cluster.gateway.file = cluster.gateway.report()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 1, 0, 1))
    cluster.kill_gateway()
    cluster.lead()
    cluster.settle()
    assert cluster.ledger()["ann", "prompt_tokens"] == 10


def test_a_file_that_is_older_than_the_last_report_changes_nothing() -> None:
    cluster = Cluster()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 10, 0, 5))
    cluster.gateway.file = cluster.gateway.report()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 7, 0, 1))
    cluster.second()
    cluster.kill_gateway()
    cluster.settle()
    assert cluster.ledger()["ann", "prompt_tokens"] == 17
    assert cluster.month_tokens() == {"t1": 23}
    cluster.lead()
    cluster.settle()
    assert cluster.ledger()["ann", "prompt_tokens"] == 17


def test_commits_of_tokens_are_seconds_apart_and_at_once_at_the_end_of_a_service() -> (
    None
):
    cluster = Cluster()
    cluster.tick()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 10, 0, 5))
    cluster.second()
    cluster.tick()
    assert not cluster.ledger()
    waiting = cluster.traffic.tokens.waiting(cluster.world, cluster.now)
    assert [(row.user, row.amounts.prompt_tokens) for row in waiting] == [("ann", 10)]
    stopped = service(state=ServiceState.STOPPED)
    cluster.commit(Changes(services=(stopped,)))
    cluster.world.apply(Changes(services=(stopped,)))
    cluster.tick()
    assert cluster.ledger()["ann", "output_tokens"] == 5


def test_tokens_are_in_the_queue_of_the_service_and_of_their_day() -> None:
    replica = JobSpec(name="r", run="true", queue=QueueName("serving"))
    one = service(spec=replace(spec(), replica=replica))
    cluster = Cluster(one)
    for day in (20, 21, 22):
        cluster.now = day * DAY_SECONDS
        cluster.gateway.serve("ann/t1", CallerCounts(1, 10 * day, 0, 1))
        cluster.settle()
    rows = asyncio.run(cluster.store.days(first=0, last=99))
    assert [(row.day, row.queue, row.amounts.prompt_tokens) for row in rows] == [
        (day, "serving", 10.0 * day) for day in (20, 21, 22)
    ]
    assert all(row.user == UserName("ann") and not row.gpu_type for row in rows)
    assert tokens_since(cluster.world, one, 21) == 210 + 220 + 2
    assert day_of(cluster.now) == 22


def test_a_process_is_forgotten_long_after_its_end_and_never_while_it_reports() -> None:
    cluster = Cluster()
    cluster.gateway.serve("ann/t1", CallerCounts(1, 10, 0, 5))
    cluster.settle()
    cluster.processes.append(GatewayProcess(1))
    cluster.gateway.serve("ann/t1", CallerCounts(1, 1, 0, 1))
    cluster.settle()
    assert len(cluster.world.gateway_counts) == 2
    cluster.now += KEEP_SECONDS
    for _ in range(3):  # the ended one is no longer in memory, then in no row
        cluster.settle()
    assert [key[0] for key in cluster.world.gateway_counts] == ["process-1"]
    cluster.lead()
    cluster.settle()
    assert cluster.ledger()["ann", "prompt_tokens"] == 11


def test_tokens_of_batches_are_counted_apart_and_cost_half() -> None:
    gateway = GatewayProcess(1)
    gateway.serve("ann/t1", CallerCounts(1, 60, 10, 40))
    gateway.serve("ann/j1.1/batch", CallerCounts(2, 600, 100, 400))
    ledger = TokenLedger()
    ledger.take(gateway.report(), 1.0)
    world = World(cluster=ClusterId("c"), term=1)
    news = ledger.news(world, Now(wall=86_400.0, serving=1.0))
    [record] = news.accounts
    assert record.amounts.prompt_tokens == 660
    assert record.amounts.batch_tokens == 1000
    assert record.amounts.service_tokens == 100 + 500
    [count] = news.gateway_counts
    assert count.tokens_since(0) == 100 + 500
