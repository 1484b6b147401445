"""Who holds what: gangs find their seats, take them all, and give them back."""

from typing import Any, Final, NamedTuple

from corral.schedule.cluster import Cluster, give, refile, take
from corral.schedule.compiled import column, compiled
from corral.schedule.forms import (
    NO_FORM,
    Forms,
    ask_of,
    millis_of,
    nodes_of,
    part_millis,
)
from corral.schedule.fragment import Demand
from corral.schedule.place import place

NOBODY: Final = -1
SPARE, USED = 0, 1


class Seating(NamedTuple):
    """Columns of seats (one for each node that a job is on), of nodes and of jobs.

    `after`, `before`: the next and the last seat on the same node; `next`: of the same job.
    `first_on`: by node; `first_of`, `form`: by job, what it holds now. `out_node`, `out_mask`: what
    `find` has found. `total`: at SPARE how many seats are unused, at USED thousandths of GPUs held.
    """

    cluster: Cluster
    demand: Demand
    forms: Forms
    node: Any
    mask: Any
    job: Any
    next: Any
    after: Any
    before: Any
    first_on: Any
    first_of: Any
    form: Any
    spare: Any
    out_node: Any
    out_mask: Any
    total: Any


def seating_of(cluster: Cluster, demand: Demand, forms: Forms, *, jobs: int, seats: int) -> Seating:
    """Nobody holds anything. There is room for so many jobs, and seats of all of them together."""
    seating = Seating(
        cluster=cluster,
        demand=demand,
        forms=forms,
        **{name: column(seats, "int", NOBODY) for name in ("job", "next", "after", "before")},
        **{name: column(seats, "int") for name in ("node", "mask", "spare")},
        first_on=column(cluster.nodes, "int", NOBODY),
        first_of=column(jobs, "int", NOBODY),
        form=column(jobs, "int", NO_FORM),
        out_node=column(cluster.nodes, "int"),
        out_mask=column(cluster.nodes, "int"),
        total=column(2, "int"),
    )
    for seat in range(seats):
        seating.spare[seat] = seats - 1 - seat
    seating.total[SPARE] = seats
    return seating


@compiled
def find(seating: Seating, form: int) -> int:
    """Free seats of the whole gang into `out_node` and `out_mask`; how many, 0 for no room."""
    cluster, forms = seating.cluster, seating.forms
    wanted, found = nodes_of(forms, form), 0
    if wanted <= cluster.nodes and wanted <= seating.total[SPARE]:
        found = place(cluster, seating.demand, ask_of(forms, form, False))
    for at in range(found):
        seating.out_node[at] = cluster.out_node[at]
        seating.out_mask[at] = cluster.out_mask[at]
    if not found or found == wanted:
        return int(found)
    _open(seating, found, False)
    rest = place(cluster, seating.demand, ask_of(forms, form, True))
    _open(seating, found, True)
    seating.out_node[found] = cluster.out_node[0]
    seating.out_mask[found] = cluster.out_mask[0]
    return int(wanted) if rest else 0


@compiled
def _open(seating: Seating, found: int, is_open: bool) -> None:
    """Whether anybody finds a seat on the nodes that were just found; all of them were usable."""
    for at in range(found):
        seating.cluster.usable[seating.out_node[at]] = is_open
        refile(seating.cluster, seating.out_node[at])


@compiled
def hold(seating: Seating, job: int, form: int, seats: int) -> None:
    """Give the job the seats that were found."""
    seating.form[job] = form
    for at in range(seats - 1, -1, -1):
        node, mask = seating.out_node[at], seating.out_mask[at]
        seating.total[SPARE] -= 1
        seat = seating.spare[seating.total[SPARE]]
        seating.node[seat] = node
        seating.mask[seat] = mask
        seating.job[seat] = job
        seating.next[seat] = seating.first_of[job]
        seating.first_of[job] = seat
        _link(seating, seat, node)
        _take(seating, form, node, mask)
    seating.total[USED] += millis_of(seating.forms, form)


@compiled
def release(seating: Seating, job: int) -> None:
    """Take back all that the job holds."""
    form, seat = seating.form[job], seating.first_of[job]
    while seat != NOBODY:
        node = seating.node[seat]
        _unlink(seating, seat, node)
        _give(seating, form, node, seating.mask[seat])
        seating.job[seat] = NOBODY
        seating.spare[seating.total[SPARE]] = seat
        seating.total[SPARE] += 1
        seat = seating.next[seat]
    if form != NO_FORM:
        seating.total[USED] -= millis_of(seating.forms, form)
    seating.first_of[job] = NOBODY
    seating.form[job] = NO_FORM


@compiled
def _link(seating: Seating, seat: int, node: int) -> None:
    following = seating.first_on[node]
    seating.after[seat] = following
    seating.before[seat] = NOBODY
    if following != NOBODY:
        seating.before[following] = seat
    seating.first_on[node] = seat


@compiled
def _unlink(seating: Seating, seat: int, node: int) -> None:
    before, after = seating.before[seat], seating.after[seat]
    if before == NOBODY:
        seating.first_on[node] = after
    else:
        seating.after[before] = after
    if after != NOBODY:
        seating.before[after] = before


@compiled
def _take(seating: Seating, form: int, node: int, mask: int) -> None:
    cluster, forms = seating.cluster, seating.forms
    millis = part_millis(cluster, forms, form, node)
    take(cluster, node, mask, millis, forms.cpu[form], forms.memory[form], forms.alone[form])


@compiled
def _give(seating: Seating, form: int, node: int, mask: int) -> None:
    cluster, forms = seating.cluster, seating.forms
    millis = part_millis(cluster, forms, form, node)
    give(cluster, node, mask, millis, forms.cpu[form], forms.memory[form], forms.alone[form])
