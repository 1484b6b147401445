"""One day through the live path and through the fast path: the same decisions, to the
GPU.

The live path is the real control with its store, its loop and its records; the fast
path is `replay.live_replay`, which start intervals and the simulator with queues go
through.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from math import log10
from random import Random

import pytest

from corral.domain.ids import BootId, JobId, NodeId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE, JobSpec
from corral.domain.node import Liveness, Node
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Gpu, Inventory, Shape
from corral.reconcile.latest_end import holds_seconds
from corral.replay import Workload, replay
from corral.replay.array_replay import ReplayEvent
from corral.replay.array_world import BEGAN_ON
from corral.replay.live_replay import Play
from corral.replay.queue_replay import replay_queued
from corral.replay.snapshot import Coming, Happened, JobClass, Present, Terms
from corral.schedule import Waiting
from corral.schedule.columns.order import POLICIES
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from corral.schedule.prediction.runtime_model import Lessons
from tests.replay.live_head import Decided, Row, decided_live

DAY_SECONDS = 86_400
# a restart as a head takes it to be
TERMS = Terms(restart_seconds=60.0, save_seconds=1800.0)
# GPUs asked for and how often, as in SenseTime's Venus (Hu et al. 2021, SC), up to 4
# nodes
LIMITS = (3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 3 * 86_400.0)
SIZES = ((1, 2654), (2, 248), (4, 411), (8, 1546), (16, 301), (24, 69), (32, 142))


def node(row: int) -> Node:
    gpus = (
        Gpu(index=i, uuid=f"{row}-{i}", type="v100", memory_bytes=0) for i in range(8)
    )
    return Node(
        id=NodeId(f"n{row:02d}"),
        boot=BootId("1"),
        inventory=Inventory(
            gpus=tuple(gpus), cpu_millis=64_000, memory_bytes=2**38, shared=(("/shared", "m"),),
            ports=tuple(range(20_000, 20_064)), gpu_shares=True,
        ),
        liveness=Liveness.ALIVE,
    )  # fmt: skip


def day(
    seed: int,
    jobs: int,
    *,
    priorities: Sequence[int] = (0,),
    shares: Sequence[int] = (0,),
    queues: str = "aaabbc",
) -> list[Row]:
    """Most jobs take minutes and some a day; most come by day; a few users have most of
    them. What a job is called tells something of how long it runs, and its limit a
    little. `shares`: in thousandths, of those that ask for one GPU."""
    chance = Random(seed)
    sizes, weights = zip(*SIZES, strict=True)
    rows = []
    for _ in range(jobs):
        hour = chance.choices(range(24), [1] * 8 + [4] * 12 + [2] * 4)[0]
        gpus = chance.choices(sizes, weights)[0]
        seconds = min(2 * DAY_SECONDS, 1 + int(chance.lognormvariate(7.0, 2.2)))
        rows.append(
            Row(
                at=float(hour * 3600 + chance.randrange(3600)), seconds=float(seconds),
                nodes=max(1, gpus // 8), gpus=min(8, gpus), queue=chance.choice(queues),
                user=chance.choice(("ann", "ann", "bob", "eve")),
                priority=chance.choice(priorities),
                share_millis=chance.choice(shares) if gpus == 1 else 0,
                name="abcdefgh"[int(log10(seconds) + chance.random())],
                limit=next(limit for limit in LIMITS if limit > seconds + 120.0),
            )
        )  # fmt: skip
    return sorted(rows)


def decided_fast(
    rows: Sequence[Row], nodes: Sequence[Node], tree: QueueTree
) -> list[Decided]:
    found: list[Decided] = []

    def hear(one: Happened) -> None:
        row = int(one.job)
        if one.kind == JobClass.STARTED:
            seats = tuple(sorted((seat.node, seat.gpus) for seat in one.seats))
            found.append(Decided(one.at, "started", row, seats))
        elif one.kind == JobClass.PREEMPTED:
            assert one.by is not None
            found.append(Decided(one.at, "preempted", row, by=int(one.by)))

    coming = [
        Coming(row.at, gang(number, row, tree), row.seconds)
        for number, row in enumerate(rows)
    ]
    present = Present(now=0.0, nodes=nodes, tree=tree)
    Play(present, {}, coming, terms=TERMS, hear=hear, lessons=Lessons()).run()
    return found


def gang(number: int, row: Row, tree: QueueTree) -> Waiting:
    """As the head would see it: names and limits are told where the order asks for
    them."""
    shape, queue = Shape(nodes=row.nodes, resources=row.resources), QueueName(row.queue)
    by_kin = tree.policy_of(queue) == Policy.SJF
    spec = JobSpec(name=row.name, run="true", max_duration_seconds=row.limit)
    return Waiting(
        job=JobId(str(number)), shapes=(shape,), priority=row.priority, order=(number, 0),
        queue=queue, user=UserName(row.user), stem=row.name if by_kin else "",
        holds_seconds=holds_seconds(spec), limit_seconds=row.limit if by_kin else None,
    )  # fmt: skip


def queues(own: Mapping[str, int], policy: Policy = Policy.DEFAULT) -> QueueTree:
    return whole_tree(
        [
            Queue(
                name=QueueName(name), preempt=Preempt.ANY, policy=policy,
                nominal=((ANY_TYPE, gpus * 1000),) if gpus else (),
            )
            for name, gpus in own.items()
        ],
        min_runtime_seconds=300.0,
    )  # fmt: skip


BY_LIMITS = (Policy.BACKFILL, Policy.CONSERVATIVE)
SAME = [("fifo", Policy.FIFO), ("fifo-skip", Policy.FIFO_SKIP)]
PARTED = [
    ("easy", Policy.BACKFILL, 2),
    ("sjf", Policy.SJF, 1),
    ("conservative", Policy.CONSERVATIVE, 1),
    ("default", Policy.DEFAULT, 1),
]


def below_one(
    own: Mapping[str, int], half_life_seconds: float = 7.0 * DAY_SECONDS
) -> QueueTree:
    """These queues, which go by service over all of them."""
    gpus = ((ANY_TYPE, sum(own.values()) * 1000),)
    top = Queue(name=QueueName("all"), nominal=gpus, policy=Policy.ATTAINED)
    below = [
        replace(one, parent=top.name) for one in queues(own).queues if one.name in own
    ]
    return whole_tree(
        [top, *below], half_life_seconds=half_life_seconds, min_runtime_seconds=300.0
    )


def longer(rows: Sequence[Row], times: int) -> list[Row]:
    """So that somebody waits for more than a day."""
    return [
        row._replace(seconds=row.seconds * times, limit=(row.limit or 0.0) * times)
        for row in rows
    ]


EACH, LITTLE = {"a": 32, "b": 24, "c": 8}, {"a": 16, "b": 0, "c": 0}
DAYS = {  # and how many give way at the least
    "each its own": (queues(EACH), day(2020, 200), 50),
    "little its own, and priorities": (
        queues(LITTLE), day(2020, 200, priorities=(0, 0, 0, 100)), 50,
    ),
    "parts of GPUs": (queues(EACH), day(2020, 200, shares=(0, 250, 500, 430)), 50),
    "places are bought in one queue": (queues({"a": 64}), day(2020, 180, queues="a"), 50),
    "the oldest has its turn": (queues({"a": 64}), longer(day(2020, 120, queues="a"), 6), 50),
    "by kin": (queues(EACH, Policy.SJF), day(2020, 200), 5),
    "EASY": (queues(EACH, Policy.BACKFILL), day(2020, 200), 1),
    "conservative": (queues(EACH, Policy.CONSERVATIVE), day(2020, 160), 0),
    "by service over all": (below_one(EACH), day(2020, 200), 50),
    "who borrows pays back": (below_one(EACH, 1800.0), day(2020, 200), 50),
}  # fmt: skip


@pytest.mark.parametrize("name", DAYS)
def test_a_day_is_decided_alike_by_the_live_path_and_the_fast_one(name: str) -> None:
    tree, rows, giving = DAYS[name]
    nodes = [node(row) for row in range(8)]
    live = decided_live(rows, nodes, tree, TERMS)
    fast = decided_fast(rows, nodes, tree)
    parted = [at for at in sorted({one.at for one in (*live, *fast)})
              if by_moment(live, at) != by_moment(fast, at)][:1]  # fmt: skip
    assert [by_moment(live, at) for at in parted] == [
        by_moment(fast, at) for at in parted
    ]
    waits = [one for one in fast if one.kind == "started" and one.at > rows[one.row].at]
    assert len(waits) > 20, "somebody waits"
    assert sum(one.kind == "preempted" for one in fast) >= giving, "somebody gives way"


def by_moment(decided: Sequence[Decided], at: float) -> list[Decided]:
    return sorted(one for one in decided if one.at == at)


# -- the columns, which replay 50,000 jobs a second ------------------------------------------------

Start = tuple[float, int, int, int]  # when, job, node, GPUs


def whole_nodes(rows: Sequence[Row], policy: Policy) -> Workload:
    """The same day without queues and users: jobs of one node, or of whole ones. Limits
    are told where they count."""
    return Workload(
        submits=[row.at for row in rows],
        durations=[row.seconds for row in rows],
        gpus=[row.nodes * row.gpus for row in rows],
        queues=[0] * len(rows),
        limits=[row.limit or 0.0 for row in rows] if policy in BY_LIMITS else (),
    )


def starts(play: Callable[[Callable[[ReplayEvent], None]], object]) -> list[Start]:
    """In the order of the log."""
    found: list[ReplayEvent] = []
    play(found.append)
    return sorted(
        (one.at, one.job, one.node, one.gpus) for one in found if one.kind == BEGAN_ON
    )


def both(seed: int, named: str, policy: Policy) -> tuple[list[Start], list[Start]]:
    """By the columns, and by the live decision in one queue."""
    work, nodes = whole_nodes(day(seed, 200), policy), [8] * 8
    name = DEFAULT_QUEUE
    tree = QueueTree(queues=(Queue(name=name, policy=policy),))
    columns = starts(lambda hear: replay(work, nodes, POLICIES[named], on_event=hear))
    live = starts(lambda hear: replay_queued(work, nodes, tree, [name], on_event=hear))
    return columns, live


def longest_wait(seed: int, columns: list[Start], live: list[Start]) -> float:
    """How long, where the two part, somebody has waited who had not started sooner."""
    first = min(at for at, *_ in set(columns) ^ set(live))
    began: dict[int, float] = {}
    for at, job, *_ in sorted([*columns, *live], reverse=True):
        began[job] = at
    return max(
        first - row.at
        for job, row in enumerate(day(seed, 200))
        if row.at <= first <= began[job]
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("named", "policy"), SAME)
def test_the_columns_start_the_same_jobs_on_the_same_nodes_but_for_reservations(
    named: str, policy: Policy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First come, first served, strictly or with leave to skip."""
    monkeypatch.setattr(
        import_module("corral.schedule.decide"), "RESERVE_AFTER_SECONDS", float("inf")
    )
    columns, live = both(seed, named, policy)
    assert columns == live
    assert len({at for at, *_ in columns}) > (80 if policy == Policy.FIFO else 100)


@pytest.mark.parametrize(("named", "policy"), SAME[1:])
def test_with_reservations_they_part_only_after_somebody_has_waited_for_so_long(
    named: str, policy: Policy
) -> None:
    columns, live = both(2, named, policy)
    assert longest_wait(2, columns, live) >= RESERVE_AFTER_SECONDS


@pytest.mark.parametrize(("named", "policy", "seed"), PARTED)
def test_by_the_other_policies_they_part_only_where_somebody_waits(
    named: str, policy: Policy, seed: int
) -> None:
    """What else they do is told in decision 0017."""
    columns, live = both(seed, named, policy)
    first = min(at for at, *_ in set(columns) ^ set(live))
    assert longest_wait(seed, columns, live) > 0
    assert len([at for at, *_ in columns if at < first]) > 20
