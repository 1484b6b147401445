"""What a log of events says, found without the scheduler's code: its own books and
numbers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from corral.replay import Workload
from corral.replay.array_replay import ReplayEvent

STARTED, PREEMPTED, ENDED, PROMISED, FAILED = 0, 1, 2, 3, 4
NEAR = 1e-6


@dataclass(slots=True)
class Books:
    """`service`: seconds that each job has had. `running`: since when, and what it
    restores for.

    `promised`: when each starts at the latest. `broken`: who started later than that.
    """

    free: list[int]
    save_seconds: float = 0.0
    service: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    seats: defaultdict[int, dict[int, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    since: dict[int, tuple[float, float]] = field(default_factory=dict)
    starts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    promised: dict[int, float] = field(default_factory=dict)
    broken: list[int] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)
    preemptions: int = 0
    failures: int = 0
    held: float = 0.0
    lost: float = 0.0


def check(
    work: Workload,
    nodes: Sequence[int],
    restart_seconds: float,
    events: Sequence[ReplayEvent],
    *,
    save_seconds: float = 0.0,
) -> Books:
    """Raises: AssertionError when a node is over-allocated, a gang is not whole, time
    runs back or a job does not get just the service that it needs."""
    books, last = Books(free=list(nodes), save_seconds=save_seconds), 0.0
    for event in events:
        assert event.at >= last, "time runs back"
        last = event.at
        if event.kind == STARTED:
            _start(books, work, restart_seconds, event)
        elif event.kind == PROMISED:
            assert event.service >= event.at, "promised for the past"
            books.promised.setdefault(event.job, event.service)
        else:
            _stop(books, work, event, horizon=work.submits[-1])
    assert sorted(books.ended) == list(range(len(work.submits))), "somebody never ended"
    assert books.free == list(nodes), "somebody still holds GPUs"
    return books


def _start(
    books: Books, work: Workload, restart_seconds: float, event: ReplayEvent
) -> None:
    job = event.job
    assert event.at >= work.submits[job], "started before it was submitted"
    assert job not in books.ended, "started after its end"
    if job not in books.since:
        overhead = restart_seconds if books.starts[job] else 0.0
        books.since[job] = (event.at, overhead)
        books.starts[job] += 1
        if event.at > books.promised.get(job, event.at) + NEAR:
            books.broken.append(job)
    assert books.since[job][0] == event.at, "a gang grew after its start"
    books.free[event.node] -= event.gpus
    assert books.free[event.node] >= 0, f"node {event.node} is over-allocated"
    assert event.node not in books.seats[job], "two seats on one node"
    books.seats[job][event.node] = event.gpus


def _stop(books: Books, work: Workload, event: ReplayEvent, *, horizon: float) -> None:
    job = event.job
    began, overhead = books.since.pop(job)
    gpus = sum(books.seats[job].values())
    assert gpus == work.gpus[job], "a gang was not whole"
    for node, held in books.seats.pop(job).items():
        books.free[node] += held
    before = books.service[job]
    books.service[job] += max(0.0, event.at - began - overhead)
    books.held += gpus * max(0.0, min(event.at, horizon) - began)
    books.lost += gpus * min(event.at - began, overhead)
    if event.kind == FAILED:
        _fail(books, event, gpus, before)
    assert abs(books.service[job] - event.service) < NEAR, "service was lost or made up"
    if event.kind != ENDED:
        books.preemptions += event.kind == PREEMPTED
        assert books.service[job] < work.durations[job] + NEAR, "it was done already"
        return
    assert abs(books.service[job] - work.durations[job]) < NEAR, (
        "ended too early or too late"
    )
    books.ended[job] = event.at


def _fail(books: Books, event: ReplayEvent, gpus: int, before: float) -> None:
    """Only what was saved is left: at each interval of service, and whenever it was
    preempted."""
    done, every = books.service[event.job], books.save_seconds
    books.failures += 1
    books.service[event.job] = max(before, done - done % every) if every else 0.0
    books.lost += gpus * (done - books.service[event.job])


def mean_completion(work: Workload, books: Books) -> float:
    return sum(books.ended[job] - at for job, at in enumerate(work.submits)) / len(
        work.submits
    )


def longest_wait(work: Workload, books: Books) -> float:
    rows = enumerate(zip(work.submits, work.durations, strict=True))
    return max(max(0.0, books.ended[job] - at - own) for job, (at, own) in rows)


def mean_slowdown(work: Workload, books: Books) -> float:
    rows = list(enumerate(zip(work.submits, work.durations, strict=True)))
    return sum(
        max(1.0, (books.ended[j] - at) / max(10.0, own)) for j, (at, own) in rows
    ) / len(rows)
