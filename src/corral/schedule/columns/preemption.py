"""Preemption of running jobs with worse keys, the cheapest first, if the gang then has
seats.

A preemptor pays for its seats in two ways. Its key must be better than the victim's by
the margin and by the cost of the victim's restart (only then does it pay to put one job
before the other). It must also have waited as long as all the restarts cost, divided by
its own number of GPUs. By then, many gangs have found room without preemption (rent
before you buy).
"""

from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.columns.gpu_pool import Pool, part_gpus, parts_of
from corral.schedule.columns.job_groups import NONE, JobColumns
from corral.schedule.columns.order import ColumnPolicy

NEVER: Final = 1e300


class VictimColumns(NamedTuple):
    """Work space for the choice of jobs to preempt (victims) for one waiting gang.

    `job` lists the victims chosen so far, and `chosen` marks the same jobs. `picked`
    lists the victims on the node that is being examined, and `best` those on the
    cheapest node so far. `count` holds the length of `job` at 0, and that of `picked`
    at 1. `cost` is the cost of the victims in `picked`.
    """

    job: Any
    chosen: Any
    picked: Any
    best: Any
    count: Any
    cost: Any


def victims_of(pool: Pool, jobs: int) -> VictimColumns:
    """Return empty columns with room for as many victims as there are GPUs."""
    return VictimColumns(
        job=column(pool.gpus, "int"),
        chosen=column(jobs, "bool", False),
        picked=column(pool.wide, "int"),
        best=column(pool.wide, "int"),
        count=column(3, "int"),
        cost=column(1, "float"),
    )


@compiled
def find_victims(
    pool: Pool,
    jobs: JobColumns,
    victims: VictimColumns,
    policy: ColumnPolicy,
    job: int,
    key: float,
    now: float,
) -> int:
    """Choose victims for the gang. Return the number of seats that it gets once they
    stop; 0 if there is no solution.

    The seats are stored as `find` stores them. `key` is the gang's own key, including
    its restart cost. If the key is below zero, as for the oldest job, the preemption
    has no price.
    """
    gpus = jobs.gpus[job]
    seat_count, victim_count = parts_of(pool, gpus), 0
    victims.count[0] = 0
    while victim_count < seat_count:
        need = part_gpus(pool, gpus, victim_count)
        node = _cheapest_node(pool, jobs, victims, policy, need, key)
        if node == NONE:
            break
        for victim_index in range(victims.count[2]):
            victim = victims.best[victim_index]
            victims.chosen[victim] = True
            victims.job[victims.count[0]] = victim
            victims.count[0] += 1
        pool.taken[node] = True
        pool.out_node[victim_count] = node
        pool.out_gpus[victim_count] = need
        victim_count += 1
    for seat_index in range(victim_count):
        pool.taken[pool.out_node[seat_index]] = False
    given_up = 0
    for victim_index in range(victims.count[0]):
        victims.chosen[victims.job[victim_index]] = False
        given_up += jobs.gpus[victims.job[victim_index]]
    if victim_count < seat_count:
        return 0
    price = policy.price * policy.restart_seconds * given_up / gpus
    return 0 if key >= 0 and now - jobs.queued[job] < price else seat_count


@compiled
def _cheapest_node(
    pool: Pool,
    jobs: JobColumns,
    victims: VictimColumns,
    policy: ColumnPolicy,
    need: int,
    key: float,
) -> int:
    """Return the node on which `need` GPUs can be freed at the least cost; -1 if
    there is no such node. The victims on that node are in `best`, and their number is
    in count[2]."""
    chosen, least_cost, most_free = NONE, NEVER, 0
    for node in range(pool.nodes):
        if pool.taken[node] or pool.size[node] < need:
            continue
        have = _will_be_free(pool, victims, node)
        if not _pick_victims(
            pool, jobs, victims, policy, node, need - have, key, least_cost
        ):
            continue
        cost = victims.cost[0]
        if cost < least_cost or (cost == least_cost and have < most_free):
            chosen, least_cost, most_free = node, cost, pool.free[node]
            victims.count[2] = victims.count[1]
            for victim_index in range(victims.count[1]):
                victims.best[victim_index] = victims.picked[victim_index]
    return chosen


@compiled
def _will_be_free(pool: Pool, victims: VictimColumns, node: int) -> int:
    """Return the number of free GPUs of the node once the victims chosen so far have
    ended."""
    free_gpus = pool.free[node]
    for held_index in range(node * pool.wide, node * pool.wide + pool.holders[node]):
        seat = pool.held[held_index]
        if victims.chosen[pool.seat_job[seat]]:
            free_gpus += pool.seat_gpus[seat]
    return int(free_gpus)


@compiled
def _pick_victims(
    pool: Pool,
    jobs: JobColumns,
    victims: VictimColumns,
    policy: ColumnPolicy,
    node: int,
    need: int,
    key: float,
    below: float,
) -> bool:
    """Write the victims on the node that free `need` GPUs into `picked`, the worst key
    first. Return False if they do not suffice, or cost `below` or more.

    The cost of a victim is its GPUs divided by its key, which measures the service that
    it still needed.
    """
    victims.count[1] = 0
    victims.cost[0] = 0.0
    while need > 0:
        seat = _worst_seat(pool, jobs, victims, node)
        if seat == NONE:
            return False
        victim = pool.seat_job[seat]
        worth = jobs.key[victim]
        bar = policy.restart_seconds * jobs.weight[victim]
        if worth < 0 or key * policy.margin + bar >= worth:
            return False
        victims.picked[victims.count[1]] = victim
        victims.count[1] += 1
        victims.cost[0] += jobs.gpus[victim] / worth
        if victims.cost[0] >= below:
            return False
        need -= pool.seat_gpus[seat]
    return True


@compiled
def _worst_seat(pool: Pool, jobs: JobColumns, victims: VictimColumns, node: int) -> int:
    worst, largest, worst_job = NONE, -1.0, NONE
    for held_index in range(node * pool.wide, node * pool.wide + pool.holders[node]):
        seat = pool.held[held_index]
        job = pool.seat_job[seat]
        if victims.chosen[job] or (jobs.key[job], job) <= (largest, worst_job):
            continue
        is_picked = False
        for victim_index in range(victims.count[1]):
            is_picked = is_picked or victims.picked[victim_index] == job
        if not is_picked:
            worst, largest, worst_job = seat, jobs.key[job], job
    return worst
