"""Whole GPUs on nodes, and the jobs that hold them: the reduced form of the cluster
that queueing needs.

A gang of more GPUs than a node has takes whole nodes and, for the rest, a part of one
more node.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled

NOBODY: Final = -1
SPARE, USED = 0, 1


class Pool(NamedTuple):
    """Columns of nodes, seats and jobs. A seat is the GPUs of one job on one node.

    `held` maps node * wide + position to a seat, where `wide` is the number of GPUs of
    the largest node. `with_free` maps a number of free GPUs to the number of nodes with
    exactly that many. `total` holds two values: the number of unused seat rows at
    SPARE, and the number of held GPUs at USED.
    """

    nodes: int
    wide: int
    gpus: int
    size: Any
    free: Any
    held: Any
    holders: Any
    with_free: Any
    taken: Any
    out_node: Any
    out_gpus: Any
    seat_node: Any
    seat_gpus: Any
    seat_job: Any
    seat_next: Any
    first_seat: Any
    spare: Any
    total: Any


def pool_of(sizes: Sequence[int], jobs: int) -> Pool:
    """Return a pool in which all GPUs are free. `sizes` holds the number of GPUs of
    each node, and `jobs` is the number of job rows."""
    nodes, wide, gpus = len(sizes), max([1, *sizes]), sum(sizes)
    pool = Pool(
        nodes=nodes,
        wide=wide,
        gpus=gpus,
        size=column(nodes, "int"),
        free=column(nodes, "int"),
        held=column(nodes * wide, "int", NOBODY),
        holders=column(nodes, "int"),
        with_free=column(wide + 1, "int"),
        taken=column(nodes, "bool", False),
        out_node=column(nodes, "int"),
        out_gpus=column(nodes, "int"),
        seat_node=column(gpus, "int"),
        seat_gpus=column(gpus, "int"),
        seat_job=column(gpus, "int", NOBODY),
        seat_next=column(gpus, "int", NOBODY),
        first_seat=column(jobs, "int", NOBODY),
        spare=column(gpus, "int"),
        total=column(2, "int"),
    )
    for node, size in enumerate(sizes):
        pool.size[node] = size
        pool.free[node] = size
        pool.with_free[size] += 1
    for seat in range(gpus):
        pool.spare[seat] = gpus - 1 - seat
    pool.total[SPARE] = gpus
    return pool


@compiled
def parts_of(pool: Pool, gpus: int) -> int:
    """Return on how many nodes a gang of `gpus` GPUs needs seats."""
    return -(-gpus // pool.wide)


@compiled
def part_gpus(pool: Pool, gpus: int, part: int) -> int:
    """Return the number of GPUs in seat number `part` of a gang. Seats on whole nodes
    come first, and the remainder is last."""
    return min(pool.wide, gpus - part * pool.wide)


@compiled
def best_fit(pool: Pool, need: int) -> int:
    """Return the node with the fewest free GPUs, but at least `need`; the first one of
    equals. Return -1 if no node has enough. Nodes in `taken` are skipped."""
    best_node, least_free = NOBODY, pool.wide + 1
    for node in range(pool.nodes):
        free_gpus = pool.free[node]
        if need <= free_gpus < least_free and not pool.taken[node]:
            best_node, least_free = node, free_gpus
            if free_gpus == need:
                break
    return best_node


@compiled
def find(pool: Pool, gpus: int) -> int:
    """Write free seats for the whole gang into `out_node` and `out_gpus`. Return the
    number of seats; 0 if there is no room."""
    seat_count = parts_of(pool, gpus)
    if seat_count > 1 and pool.with_free[pool.wide] < gpus // pool.wide:
        return 0
    if gpus > pool.gpus - pool.total[USED]:
        return 0
    found_count = 0
    while found_count < seat_count:
        need = part_gpus(pool, gpus, found_count)
        node = best_fit(pool, need)
        if node == NOBODY:
            break
        pool.taken[node] = True
        pool.out_node[found_count] = node
        pool.out_gpus[found_count] = need
        found_count += 1
    for seat_index in range(found_count):
        pool.taken[pool.out_node[seat_index]] = False
    return seat_count if found_count == seat_count else 0


@compiled
def hold(pool: Pool, job: int, parts: int) -> None:
    """Assign the first `parts` seats that `find` has written to the job."""
    for seat_index in range(parts):
        node, gpus = pool.out_node[seat_index], pool.out_gpus[seat_index]
        pool.total[SPARE] -= 1
        seat = pool.spare[pool.total[SPARE]]
        pool.seat_node[seat] = node
        pool.seat_gpus[seat] = gpus
        pool.seat_job[seat] = job
        pool.seat_next[seat] = pool.first_seat[job]
        pool.first_seat[job] = seat
        pool.held[node * pool.wide + pool.holders[node]] = seat
        pool.holders[node] += 1
        _change_free_gpus(pool, node, -gpus)


@compiled
def release(pool: Pool, job: int) -> None:
    """Free all seats that the job holds."""
    seat = pool.first_seat[job]
    while seat != NOBODY:
        node = pool.seat_node[seat]
        start = node * pool.wide
        pool.holders[node] -= 1
        for held_index in range(start, start + pool.holders[node]):
            if pool.held[held_index] == seat:
                pool.held[held_index] = pool.held[start + pool.holders[node]]
                break
        _change_free_gpus(pool, node, pool.seat_gpus[seat])
        pool.seat_job[seat] = NOBODY
        pool.spare[pool.total[SPARE]] = seat
        pool.total[SPARE] += 1
        seat = pool.seat_next[seat]
    pool.first_seat[job] = NOBODY


@compiled
def _change_free_gpus(pool: Pool, node: int, gpus: int) -> None:
    pool.with_free[pool.free[node]] -= 1
    pool.free[node] += gpus
    pool.with_free[pool.free[node]] += 1
    pool.total[USED] -= gpus
