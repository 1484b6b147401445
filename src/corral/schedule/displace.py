"""Who must give way on a cluster of any shape: the cheapest running jobs whose seats make room.

Nodes are chosen one after another, each time the one where the rest of the gang costs least; a
victim that is chosen for one node is gone from all of its nodes. A gang that must lie in one domain
is tried in each.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.cluster import lift, lower
from corral.schedule.compiled import column, compiled
from corral.schedule.forms import ask_of, millis_of, nodes_of, part_millis
from corral.schedule.seat import REQUIRE, Ask, fits
from corral.schedule.seating import NOBODY, Seating

NEVER: Final = 1e300
ANYWHERE: Final = -1
CHOSEN, PICKED, BEST, LEAST = 0, 1, 2, 3  # in `count`


class Victims(NamedTuple):
    """`worth`, `bar`: by job, filled by the caller. A job may be preempted by one whose key and the
    job's `bar` together are less than its `worth`; it costs its GPUs over its worth.

    `job`: those chosen so far; `picked`: on the node that is looked at; `best`: on the cheapest
    node so far; `least`: of the cheapest domain so far. `count`: how many each of the four has.
    """

    worth: Any
    bar: Any
    chosen: Any
    job: Any
    picked: Any
    best: Any
    least: Any
    taken: Any
    seen: Any
    count: Any
    cost: Any


def victims_of(*, jobs: int, nodes: int, seats: int) -> Victims:
    """Room for as many victims as there are seats."""
    return Victims(
        worth=column(jobs, "float", -1.0),
        bar=column(jobs, "float"),
        chosen=column(jobs, "bool", False),
        **{name: column(seats, "int") for name in ("job", "picked", "best", "least")},
        taken=column(nodes, "bool", False),
        seen=column(nodes, "bool", False),
        count=column(4, "int"),
        cost=column(1, "float"),
    )


@compiled
def find_victims(seating: Seating, victims: Victims, form: int, key: float) -> bool:
    """Whether the gang fits once they are gone who are the first `count[CHOSEN]` of `job` now."""
    cluster, ask = seating.cluster, ask_of(seating.forms, form, False)
    if ask.topology != REQUIRE or nodes_of(seating.forms, form) == 1:
        return _gang(seating, victims, form, key, ANYWHERE) < NEVER
    least = NEVER
    for node in range(cluster.nodes):
        victims.seen[node] = False
    for node in range(cluster.nodes):
        if victims.seen[node]:
            continue
        domain = cluster.domain[ask.level * cluster.nodes + node]
        for other in range(node, cluster.nodes):
            if cluster.domain[ask.level * cluster.nodes + other] == domain:
                victims.seen[other] = True
        cost = _gang(seating, victims, form, key, domain)
        if cost < least:
            least = cost
            victims.count[LEAST] = victims.count[CHOSEN]
            for at in range(victims.count[CHOSEN]):
                victims.least[at] = victims.job[at]
    victims.count[CHOSEN] = victims.count[LEAST] if least < NEVER else 0
    for at in range(victims.count[CHOSEN]):
        victims.job[at] = victims.least[at]
    return least < NEVER


@compiled
def _gang(seating: Seating, victims: Victims, form: int, key: float, domain: int) -> float:
    """What a place for the gang costs, all of it in the domain; NEVER when there is none."""
    forms, wanted, found, total = seating.forms, nodes_of(seating.forms, form), 0, 0.0
    victims.count[CHOSEN] = 0
    while found < wanted:
        is_rest = found == wanted - 1 and forms.rest[form] > 0
        ask = ask_of(forms, form, is_rest)
        node = _cheapest_node(seating, victims, ask, key, domain)
        if node == NOBODY:
            total = NEVER
            break
        total += victims.cost[0]
        for at in range(victims.count[BEST]):
            victims.chosen[victims.best[at]] = True
            victims.job[victims.count[CHOSEN]] = victims.best[at]
            victims.count[CHOSEN] += 1
        victims.taken[node] = True
        seating.out_node[found] = node
        found += 1
    for at in range(found):
        victims.taken[seating.out_node[at]] = False
    for at in range(victims.count[CHOSEN]):
        victims.chosen[victims.job[at]] = False
    return total


@compiled
def _cheapest_node(seating: Seating, victims: Victims, ask: Ask, key: float, domain: int) -> int:
    """The node where the ask costs least: its victims are in `best`, what they cost in `cost`."""
    cluster, node, least, most_free = seating.cluster, NOBODY, NEVER, 0
    for at in range(cluster.nodes):
        inside = domain == ANYWHERE or cluster.domain[ask.level * cluster.nodes + at] == domain
        if victims.taken[at] or not inside or not cluster.usable[at]:
            continue
        cost = _pick(seating, victims, ask, at, key, least)
        if cost < least or (cost == least < NEVER and cluster.free_millis[at] < most_free):
            node, least, most_free = at, cost, cluster.free_millis[at]
            victims.count[BEST] = victims.count[PICKED]
            for place in range(victims.count[PICKED]):
                victims.best[place] = victims.picked[place]
    victims.cost[0] = least
    return int(node)


@compiled
def _pick(
    seating: Seating, victims: Victims, ask: Ask, node: int, key: float, below: float
) -> float:
    """Those into `picked` that must leave the node until the ask fits, of most worth first.

    Gives their cost; NEVER when it does not fit, or costs more than `below`.
    """
    victims.count[PICKED] = 0
    total, is_room = 0.0, False
    _lift_chosen(seating, victims, node)
    while True:
        is_room = not seating.cluster.alone[node] and fits(seating.cluster, ask, node)
        if is_room or total > below:
            break
        job = _worthiest(seating, victims, node, key)
        if job == NOBODY:
            break
        victims.picked[victims.count[PICKED]] = job
        victims.count[PICKED] += 1
        victims.chosen[job] = True
        total += _cost(seating, victims, job)
        _move_job(seating, node, job, True)
    if is_room:
        total -= _spare(seating, victims, ask, node)
    for at in range(victims.count[PICKED]):
        victims.chosen[victims.picked[at]] = False
        _move_job(seating, node, victims.picked[at], False)
    _lower_chosen(seating, victims, node)
    return total if is_room and total <= below else NEVER


@compiled
def _spare(seating: Seating, victims: Victims, ask: Ask, node: int) -> float:
    """Put back whom the ask turned out not to need; gives what they would have cost."""
    spared, kept = 0.0, 0
    for at in range(victims.count[PICKED]):
        job = victims.picked[at]
        _move_job(seating, node, job, False)
        if not seating.cluster.alone[node] and fits(seating.cluster, ask, node):
            spared += _cost(seating, victims, job)
            victims.chosen[job] = False
            continue
        _move_job(seating, node, job, True)
        victims.picked[kept] = job
        kept += 1
    victims.count[PICKED] = kept
    return spared


@compiled
def _cost(seating: Seating, victims: Victims, job: int) -> float:
    return float(millis_of(seating.forms, seating.form[job]) / max(victims.worth[job], 1e-9))


@compiled
def _worthiest(seating: Seating, victims: Victims, node: int, key: float) -> int:
    """The job on the node that is the first to leave it; -1: nobody else may be preempted."""
    worthiest, most = NOBODY, -1.0
    seat = seating.first_on[node]
    while seat != NOBODY:
        job = seating.job[seat]
        worth = victims.worth[job]
        is_open = not victims.chosen[job] and worth >= 0 and key + victims.bar[job] < worth
        if is_open and (worth, job) > (most, worthiest):
            worthiest, most = job, worth
        seat = seating.after[seat]
    return int(worthiest)


@compiled
def _lift_chosen(seating: Seating, victims: Victims, node: int) -> None:
    """Look at the node as if those that are chosen already were gone."""
    seat = seating.first_on[node]
    while seat != NOBODY:
        if victims.chosen[seating.job[seat]]:
            _move(seating, seat, True)
        seat = seating.after[seat]


@compiled
def _lower_chosen(seating: Seating, victims: Victims, node: int) -> None:
    """The inverse of `_lift_chosen`."""
    seat = seating.first_on[node]
    while seat != NOBODY:
        if victims.chosen[seating.job[seat]]:
            _move(seating, seat, False)
        seat = seating.after[seat]


@compiled
def _move_job(seating: Seating, node: int, job: int, lifts: bool) -> None:
    """Look at the node as if the job were gone, or was there again."""
    seat = seating.first_on[node]
    while seat != NOBODY:
        if seating.job[seat] == job:
            _move(seating, seat, lifts)
        seat = seating.after[seat]


@compiled
def _move(seating: Seating, seat: int, lifts: bool) -> None:
    cluster, forms = seating.cluster, seating.forms
    node, mask, form = seating.node[seat], seating.mask[seat], seating.form[seating.job[seat]]
    millis, alone = part_millis(cluster, forms, form, node), forms.alone[form]
    if lifts:
        lift(cluster, node, mask, millis, forms.cpu[form], forms.memory[form], alone)
    else:
        lower(cluster, node, mask, millis, forms.cpu[form], forms.memory[form], alone)
