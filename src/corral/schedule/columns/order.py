"""Order of jobs by a named rule. The rule gives a sort key to each group of waiting
jobs and to each running job; the smallest key goes first."""

from dataclasses import dataclass
from math import log
from typing import Final, NamedTuple

from corral.schedule.arrays.compiled import compiled
from corral.schedule.arrays.hazard import LEVELS
from corral.schedule.columns.job_groups import (
    AT_ACTIVE,
    AT_RUNNING,
    AT_WAITING,
    NONE,
    JobColumns,
    served,
)
from corral.schedule.columns.runtime_model import History, is_due, level_after, relearn
from corral.schedule.order.late_jobs import LATE_SECONDS, MOST, SCALE, TURN_SECONDS

FIFO, FIFO_SKIP, SHORTEST, SHORTEST_LEFT, LEAST_SERVED, LEARNED = 0, 1, 2, 3, 4, 5
EASY, EASY_SHORTEST, CONSERVATIVE = 6, 7, 8
KEPT: Final = -1.0  # the key of a running job that cannot be preempted


class ColumnPolicy(NamedTuple):
    """Parameters of a policy. See the named policies below for usual values.

    `size_power`: how a key grows with the requested GPUs: 0 counts time, 1 GPU time.
    `margin`: the factor by which a preemptor's key must be better. `price`: the wait
    that a preemptor needs, in multiples of the restart that it causes. `late_seconds`:
    the wait from which lateness counts. The latest jobs then share (lateness /
    `late_scale`) ** 2 of the GPUs, up to `late_share`, each for a turn of at most
    `late_turn_seconds`. With 0 as the scale, lateness never counts. `short_seconds`: under
    backfill, a request e times smaller (limit times weight) counts as submitted this
    much earlier. `predicts`: whether an unknown run time is predicted from similar
    jobs.
    """

    rule: int
    size_power: float = 0.0
    margin: float = 1.0
    price: float = 0.0
    restart_seconds: float = 60.0
    tick_seconds: float = 60.0
    late_seconds: float = LATE_SECONDS
    late_scale: float = 0.0
    late_share: float = MOST
    late_turn_seconds: float = TURN_SECONDS
    late_tick_seconds: float = 300.0
    short_seconds: float = 0.0
    predicts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A named policy with its properties.

    `is_oracle`: it uses the true run times of jobs, which no live scheduler knows.
    `with_limits`: the name of the policy that replaces it if users gave all jobs a time
    limit.
    """

    policy: ColumnPolicy
    is_oracle: bool = False
    with_limits: str = ""


DEFAULT: Final = "default"
POLICIES: Final = {
    "fifo": Named(policy=ColumnPolicy(FIFO)),
    "fifo-skip": Named(policy=ColumnPolicy(FIFO_SKIP)),
    "sjf": Named(policy=ColumnPolicy(SHORTEST, predicts=True)),
    "sjf-oracle": Named(policy=ColumnPolicy(SHORTEST), is_oracle=True),
    "srtf-oracle": Named(policy=ColumnPolicy(SHORTEST_LEFT), is_oracle=True),
    "las": Named(policy=ColumnPolicy(LEAST_SERVED)),
    "easy": Named(policy=ColumnPolicy(EASY, predicts=True)),
    "easy-sjf": Named(policy=ColumnPolicy(EASY_SHORTEST, predicts=True)),
    "easy-oracle": Named(policy=ColumnPolicy(EASY), is_oracle=True),
    "conservative": Named(policy=ColumnPolicy(CONSERVATIVE, predicts=True)),
    "backfill": Named(policy=ColumnPolicy(EASY, short_seconds=10_000.0, predicts=True)),
    DEFAULT: Named(
        with_limits="backfill",
        policy=ColumnPolicy(
            LEARNED,
            size_power=0.35,
            margin=1.25,
            price=1.0,
            late_scale=SCALE,
        ),
    ),
}


@compiled
def counts_service(policy: ColumnPolicy) -> bool:
    """Return whether the policy orders jobs of a class by the service that they have
    received."""
    return LEAST_SERVED <= policy.rule <= LEARNED


@compiled
def preempts(policy: ColumnPolicy) -> bool:
    return SHORTEST_LEFT <= policy.rule <= LEARNED


@compiled
def backfills(policy: ColumnPolicy) -> bool:
    """Return whether the policy uses backfill: jobs wait in one line, and a job that
    delays no other may start early."""
    return policy.rule >= EASY


@compiled
def group_of(policy: ColumnPolicy, klass: int, level: int) -> int:
    return klass * LEVELS + level if counts_service(policy) else klass


@compiled
def turn_of(policy: ColumnPolicy, jobs: JobColumns, job: int) -> float:
    """Return the number by which the job is sorted within its group or line. It is the
    job's remaining work, its time limit or its time of submission, depending on the
    policy."""
    if policy.rule in (SHORTEST, SHORTEST_LEFT):
        return float((jobs.expected[job] - jobs.attained[job]) * jobs.weight[job])
    if policy.rule == EASY_SHORTEST:
        return float(jobs.limit[job])
    if policy.short_seconds > 0:
        log_limit = log(jobs.limit[job] * jobs.weight[job])
        return float(jobs.submitted[job] + policy.short_seconds * log_limit)
    return float(jobs.submitted[job])


@compiled
def key_of_waiting(policy: ColumnPolicy, jobs: JobColumns, group: int) -> float:
    """Return the sort key of a group: the rank of the group if the policy counts
    service, else the key of its first job."""
    return float(
        jobs.rank[group] if counts_service(policy) else jobs.turn[jobs.root[group]]
    )


@compiled
def first_group(policy: ColumnPolicy, jobs: JobColumns, smaller_than: int) -> int:
    """Return the group whose first job has the best sort key. Only groups whose first
    job requests fewer than `smaller_than` GPUs count; -1 without such a group."""
    best_group, least_key, turn = NONE, 0.0, 0.0
    row = 0
    while row < jobs.count[AT_ACTIVE]:
        group = jobs.active[row]
        first_job = jobs.root[group]
        if first_job == NONE:
            jobs.count[AT_ACTIVE] -= 1
            jobs.active[row] = jobs.active[jobs.count[AT_ACTIVE]]
            jobs.is_active[group] = False
            continue
        row += 1
        if jobs.gpus[first_job] < smaller_than:
            key = key_of_waiting(policy, jobs, group)
            is_sooner = key == least_key and (jobs.turn[first_job], first_job) < (
                turn,
                jobs.root[best_group],
            )
            if best_group == NONE or key < least_key or is_sooner:
                best_group, least_key, turn = group, key, jobs.turn[first_job]
    return best_group


@compiled
def rank_groups(
    policy: ColumnPolicy, jobs: JobColumns, history: History, now: float
) -> None:
    """Update the ranks of the groups if the policy orders them by service."""
    if not counts_service(policy):
        return
    if policy.rule == LEARNED and is_due(history):
        _count_live(jobs, history, now)
        relearn(history)
    elif policy.rule == LEARNED or jobs.rank[0] > 0:
        return
    for klass in range(history.classes):
        for level in range(LEVELS):
            row = klass * LEVELS + level
            rank = (
                history.rank[row]
                if policy.rule == LEARNED
                else max(1.0, history.edge[level])
            )
            jobs.rank[row] = rank * jobs.class_weight[klass]


@compiled
def _count_live(jobs: JobColumns, history: History, now: float) -> None:
    for row in range(history.classes * LEVELS):
        history.live[row] = history.paused[row]
    for running_index in range(jobs.count[AT_RUNNING]):
        job = jobs.running[running_index]
        start = jobs.klass[job] * LEVELS
        level = level_after(history, jobs.level[job], served(jobs, job, now))
        for row in range(start, start + level):
            history.live[row] += 1


@compiled
def key_running(
    policy: ColumnPolicy, jobs: JobColumns, history: History, now: float
) -> float:
    """Set the sort key of each running job. Return the largest (worst) of these keys,
    where each key is first reduced by the cost of restarting its job."""
    worst = KEPT
    for running_index in range(jobs.count[AT_RUNNING]):
        job = jobs.running[running_index]
        done = served(jobs, job, now)
        if counts_service(policy):
            jobs.level[job] = level_after(history, jobs.level[job], done)
            key = jobs.rank[jobs.klass[job] * LEVELS + jobs.level[job]]
        else:
            key = max(0.0, jobs.expected[job] - done) * jobs.weight[job]
        if now < jobs.protected_until[job]:
            key = KEPT
        jobs.key[job] = key
        worst = max(worst, key - policy.restart_seconds * jobs.weight[job])
    return worst


@compiled
def has_waiting(jobs: JobColumns) -> bool:
    return bool(jobs.count[AT_WAITING] > 0)
