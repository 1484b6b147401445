"""Choice of running gangs to relocate within a budget, so that a waiting gang fits that
does not fit now.

A relocation is a stop at a checkpoint and a start elsewhere. Its cost in GPU-seconds,
which the caller supplies, is the work since the checkpoint plus the restart. To free
whole nodes or a rack, request them as `wanted`. The cluster is changed while
relocations are tried, and restored at the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.schedule.arrays.cluster import (
    WHOLE,
    ClusterArrays,
    give,
    share_millis,
    take,
)
from corral.schedule.arrays.fit import REQUIRE, ColumnRequest, fits
from corral.schedule.arrays.fragmentation import Demand
from corral.schedule.columns.placement import place, take_all

Seats = tuple[tuple[int, int], ...]  # node and mask of GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class MovableGangs:
    """A running gang that may be moved to other nodes, with its present seats and the
    cost of the move in GPU-seconds."""

    job: int
    ask: ColumnRequest
    seats: Seats
    cost_gpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationColumns:
    job: int
    to: Seats


@dataclass(frozen=True, slots=True)
class _Clearing:
    """The gangs that must leave a set of nodes to make room for the request `wanted`,
    and the cost of moving them in GPU-seconds."""

    leaving: tuple[int, ...]
    cost_gpu_seconds: float


def defragment(
    cluster: ClusterArrays,
    demand: Demand,
    wanted: ColumnRequest,
    running: Sequence[MovableGangs],
    *,
    budget_gpu_seconds: float,
) -> tuple[RelocationColumns, ...]:
    """Return the relocations of the cheapest solution that was found; none if `wanted`
    fits already, or no solution was found.

    Each domain that may hold `wanted` is cleared at its cheapest nodes, the cheapest
    domain first. This may miss a solution, but all relocations that are returned fit.
    """
    if place(cluster, demand, wanted):
        return ()
    gangs = {gang.job: gang for gang in running}
    clearings = [
        clearing
        for nodes in _nodes_by_domain(cluster, wanted)
        if (clearing := _cheapest_clearing(cluster, wanted, nodes, gangs)) is not None
    ]
    for clearing in sorted(
        clearings, key=lambda one: (one.cost_gpu_seconds, one.leaving)
    ):
        if clearing.cost_gpu_seconds > budget_gpu_seconds:
            return ()
        relocations = _place_relocated(
            cluster, demand, wanted, [gangs[job] for job in clearing.leaving]
        )
        if relocations is not None:
            return relocations
    return ()


def _nodes_by_domain(
    cluster: ClusterArrays, wanted: ColumnRequest
) -> Iterable[list[int]]:
    """Return the nodes that `wanted` may use, grouped by the domain that it may not
    leave."""
    domains: dict[int, list[int]] = {}
    for node in range(cluster.nodes):
        able = (
            cluster.usable[node]
            and cluster.eligible[wanted.group * cluster.nodes + node]
        )
        if able and cluster.gpus[node] >= wanted.gpus:
            domain_index = wanted.level * cluster.nodes + node
            within = (
                int(cluster.domain[domain_index]) if wanted.topology == REQUIRE else 0
            )
            domains.setdefault(within, []).append(node)
    return domains.values()


def _cheapest_clearing(
    cluster: ClusterArrays,
    wanted: ColumnRequest,
    nodes: Sequence[int],
    gangs: Mapping[int, MovableGangs],
) -> _Clearing | None:
    """Return the gangs that must leave the cheapest of these nodes so that `wanted`
    fits; None if it never does."""
    able = sum(_fits_now(cluster, wanted, node) for node in nodes)
    on_node = _by_node(gangs.values(), nodes)
    clearing_options = []
    for node in nodes:
        if not _fits_now(cluster, wanted, node):
            leaving = _gangs_to_move(cluster, wanted, node, on_node[node])
            if leaving is not None:
                cost = sum(gang.cost_gpu_seconds for gang in leaving)
                clearing_options.append((cost, node, [gang.job for gang in leaving]))
    if able + len(clearing_options) < wanted.nodes:
        return None
    chosen = sorted(clearing_options)[: wanted.nodes - able]
    jobs = tuple(sorted({job for _, _, leaving in chosen for job in leaving}))
    return _Clearing(jobs, sum(gangs[job].cost_gpu_seconds for job in jobs))


def _by_node(
    gangs: Iterable[MovableGangs], nodes: Sequence[int]
) -> dict[int, list[MovableGangs]]:
    gangs_by_node: dict[int, list[MovableGangs]] = {node: [] for node in nodes}
    for gang in gangs:
        for node, _ in gang.seats:
            if node in gangs_by_node:
                gangs_by_node[node].append(gang)
    return gangs_by_node


def _fits_now(cluster: ClusterArrays, wanted: ColumnRequest, node: int) -> bool:
    return bool(
        cluster.usable[node] and not cluster.alone[node] and fits(cluster, wanted, node)
    )


def _gangs_to_move(
    cluster: ClusterArrays,
    wanted: ColumnRequest,
    node: int,
    on_it: Sequence[MovableGangs],
) -> list[MovableGangs] | None:
    """Return the fewest cheap gangs that must leave a node so that a seat fits."""
    removed_gangs: list[MovableGangs] = []
    for gang in sorted(on_it, key=lambda one: (one.cost_gpu_seconds, one.job)):
        _toggle_gang_seats(cluster, gang, take_seats=False, only=node)
        removed_gangs.append(gang)
        if _fits_now(cluster, wanted, node):
            break
    needed = list(removed_gangs) if _fits_now(cluster, wanted, node) else None
    for gang in reversed(removed_gangs):
        _toggle_gang_seats(cluster, gang, take_seats=True, only=node)
    if needed is None:
        return None
    return _without_the_vain(cluster, wanted, node, needed)


def _without_the_vain(
    cluster: ClusterArrays,
    wanted: ColumnRequest,
    node: int,
    leaving: list[MovableGangs],
) -> list[MovableGangs]:
    """Return the gangs of `leaving` that really must leave the node. Gangs that can
    stay although the seat then fits are left out, the most expensive first."""
    for gang in reversed(leaving[:-1]):
        other_gangs = [
            leaving_gang for leaving_gang in leaving if leaving_gang is not gang
        ]
        for other_gang in other_gangs:
            _toggle_gang_seats(cluster, other_gang, take_seats=False, only=node)
        is_enough = _fits_now(cluster, wanted, node)
        for other_gang in reversed(other_gangs):
            _toggle_gang_seats(cluster, other_gang, take_seats=True, only=node)
        leaving = other_gangs if is_enough else leaving
    return leaving


def _place_relocated(
    cluster: ClusterArrays,
    demand: Demand,
    wanted: ColumnRequest,
    leaving: Sequence[MovableGangs],
) -> tuple[RelocationColumns, ...] | None:
    """Return where the relocated gangs go once `wanted` has its seats, the largest gang
    first; None if there is no room."""
    for gang in leaving:
        _toggle_gang_seats(cluster, gang, take_seats=False)
    put: list[tuple[ColumnRequest, Seats]] = []
    relocations: list[RelocationColumns] = []
    seats = _place_request(cluster, demand, wanted)
    if seats:
        put.append((wanted, seats))
        for gang in sorted(
            leaving, key=lambda one: (-one.ask.gpus * one.ask.nodes, one.job)
        ):
            seats = _place_request(cluster, demand, gang.ask)
            if not seats:
                break
            put.append((gang.ask, seats))
            relocations.append(RelocationColumns(job=gang.job, to=seats))
    for ask, seats in reversed(put):
        _turn_seats(cluster, ask, seats, take_seats=False)
    for gang in reversed(leaving):
        _toggle_gang_seats(cluster, gang, take_seats=True)
    if not put or len(relocations) < len(leaving):
        return None
    current_seats = {gang.job: gang.seats for gang in leaving}
    return tuple(
        relocation
        for relocation in relocations
        if relocation.to != current_seats[relocation.job]
    )


def _place_request(cluster: ClusterArrays, demand: Demand, ask: ColumnRequest) -> Seats:
    """Find seats for the request and take them. Return them; empty if none fit."""
    placed_at = place(cluster, demand, ask)
    seats = tuple(
        (int(cluster.out_node[i]), int(cluster.out_mask[i])) for i in range(placed_at)
    )
    if seats:
        take_all(cluster, ask)
    return seats


def _toggle_gang_seats(
    cluster: ClusterArrays,
    gang: MovableGangs,
    *,
    take_seats: bool,
    only: int | None = None,
) -> None:
    seats = tuple(seat for seat in gang.seats if only in (None, seat[0]))
    _turn_seats(cluster, gang.ask, seats, take_seats=take_seats)


def _turn_seats(
    cluster: ClusterArrays, ask: ColumnRequest, seats: Seats, *, take_seats: bool
) -> None:
    """Take the seats of a request if `take_seats` is True; otherwise return them to the
    nodes."""
    for node, mask in seats:
        millis = (
            WHOLE if ask.gpus else share_millis(ask.share, int(cluster.slices[node]))
        )
        turn = take if take_seats else give
        turn(cluster, node, mask, millis, ask.cpu, ask.memory, ask.alone)
