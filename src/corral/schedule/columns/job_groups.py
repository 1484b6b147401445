"""Jobs as columns. Waiting jobs are in groups, of which only the first job must be
examined.

The jobs of a group are alike: they have one class (queue, size) and, where service
counts, one level. In each group they are in a skew heap by `turn`, so a pass examines
one job per group, however many wait. Under backfill there are no groups: `waiting` is
one line in the order of turns.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled

FUTURE, WAITING, RUNNING, ENDED = 0, 1, 2, 3
NONE: Final = -1


class JobColumns(NamedTuple):
    """Columns of jobs in the order of submission; the last four blocks have other
    lengths.

    Known at submission are `submitted` (seconds), `gpus`, `klass`, `expected` (seconds
    of service, 0 if unknown), `limit` (maximum run time in seconds; a guess if unknown)
    and `weight` (the size as the order weighs it). `turn` is the sort key in the group
    or line. `attained` is the seconds of service before the present start. `overhead`
    is the seconds of this start that restore earlier work. `ends` is the latest end of
    a running job. `key` is the sort key of a running job; jobs with a large key are
    preempted first.

    Until `protected_until`, the job is protected because it was late. `running` and
    `waiting` hold rows in no order; `place` is a job's position in one of them.
    `class_gpus` and `class_weight` are indexed by class. `root`, `is_active` and `rank`
    are indexed by group.
    """

    submitted: Any
    gpus: Any
    klass: Any
    expected: Any
    limit: Any
    weight: Any
    state: Any
    turn: Any
    group: Any
    level: Any
    started: Any
    overhead: Any
    attained: Any
    queued: Any
    preempted: Any
    ends: Any
    key: Any
    protected_until: Any
    place: Any
    left: Any
    right: Any
    running: Any
    waiting: Any
    class_gpus: Any
    class_weight: Any
    root: Any
    is_active: Any
    rank: Any
    active: Any
    count: Any


AT_RUNNING, AT_WAITING, AT_ACTIVE = 0, 1, 2  # in `count`


def jobs_of(jobs: int, *, gpus: int, classes: int, levels: int) -> JobColumns:
    """Return empty columns for `jobs` jobs on `gpus` GPUs, before any submission."""
    groups = classes * levels
    ints = ("gpus", "klass", "state", "level", "preempted", "waiting")
    floats = ("submitted", "expected", "limit", "weight", "turn", "started", "overhead")
    links = ("group", "place", "left", "right")
    return JobColumns(
        **{name: column(jobs, "int") for name in ints},
        **{
            name: column(jobs, "float")
            for name in (*floats, "attained", "ends", "queued", "key")
        },
        **{name: column(jobs, "int", NONE) for name in links},
        protected_until=column(jobs, "float", NONE),
        running=column(gpus + 1, "int"),
        class_gpus=column(classes, "int"),
        class_weight=column(classes, "float"),
        root=column(groups, "int", NONE),
        is_active=column(groups, "bool", False),
        rank=column(groups, "float"),
        active=column(groups, "int"),
        count=column(3, "int"),
    )


@compiled
def push(jobs: JobColumns, job: int, group: int) -> None:
    """Add the job to the waiting jobs of the group."""
    jobs.state[job] = WAITING
    jobs.group[job] = group
    jobs.left[job] = NONE
    jobs.right[job] = NONE
    jobs.root[group] = merge(jobs, jobs.root[group], job)
    jobs.place[job] = jobs.count[AT_WAITING]
    jobs.waiting[jobs.count[AT_WAITING]] = job
    jobs.count[AT_WAITING] += 1
    if not jobs.is_active[group]:
        jobs.is_active[group] = True
        jobs.active[jobs.count[AT_ACTIVE]] = group
        jobs.count[AT_ACTIVE] += 1


@compiled
def drop(jobs: JobColumns, job: int) -> None:
    """Remove the job from the waiting jobs of its group, even if it is not the first
    there."""
    group = jobs.group[job]
    passed = NONE
    while jobs.root[group] != job:
        head_job = jobs.root[group]
        _pop_group_head(jobs, group, head_job)
        jobs.right[head_job] = passed  # a chain of those that were before it
        passed = head_job
    _pop_group_head(jobs, group, job)
    while passed != NONE:
        following = jobs.right[passed]
        jobs.right[passed] = NONE
        jobs.root[group] = merge(jobs, jobs.root[group], passed)
        passed = following
    jobs.count[AT_WAITING] -= 1
    last_job = jobs.waiting[jobs.count[AT_WAITING]]
    jobs.waiting[jobs.place[job]] = last_job
    jobs.place[last_job] = jobs.place[job]


@compiled
def _pop_group_head(jobs: JobColumns, group: int, first: int) -> None:
    jobs.root[group] = merge(jobs, jobs.left[first], jobs.right[first])
    jobs.left[first] = NONE
    jobs.right[first] = NONE


@compiled
def merge(jobs: JobColumns, first: int, other: int) -> int:
    """Merge two skew heaps of jobs and return the root, the job with the lowest `turn`.
    Equal turns are ordered by row."""
    root, above = NONE, NONE
    while first != NONE and other != NONE:
        if (jobs.turn[other], other) < (jobs.turn[first], first):
            first, other = other, first
        if above == NONE:
            root = first
        else:
            jobs.left[above] = first
        above = first
        rest = jobs.right[first]
        jobs.right[first] = jobs.left[first]
        first = rest
    rest = first if first != NONE else other
    if above == NONE:
        return rest
    jobs.left[above] = rest
    return root


@compiled
def begin_running(jobs: JobColumns, job: int) -> None:
    """Add the job to the list of running jobs."""
    jobs.state[job] = RUNNING
    jobs.place[job] = jobs.count[AT_RUNNING]
    jobs.running[jobs.count[AT_RUNNING]] = job
    jobs.count[AT_RUNNING] += 1


@compiled
def end_running(jobs: JobColumns, job: int) -> None:
    """Remove the job from the list of running jobs."""
    jobs.count[AT_RUNNING] -= 1
    last_job = jobs.running[jobs.count[AT_RUNNING]]
    jobs.running[jobs.place[job]] = last_job
    jobs.place[last_job] = jobs.place[job]


@compiled
def served(jobs: JobColumns, job: int, now: float) -> float:
    """Return the seconds of service of a running job up to `now`, without the time that
    its restarts took."""
    return float(
        jobs.attained[job] + max(0.0, now - jobs.started[job] - jobs.overhead[job])
    )


@compiled
def waited(jobs: JobColumns, job: int, now: float) -> float:
    """Return the seconds since its submission in which a waiting job was not served."""
    return float(now - jobs.submitted[job] - jobs.attained[job])
