"""The rules of restarts in place, taken out one at a time."""

from tests.simulate.mutant import Mutant

IN_PLACE = [
    Mutant(
        "a restart in place takes the seats of a node that may be lost",
        "reconcile.in_place:_is_fit",
        "and node.takes_work",
        "and True",
        "I7 cordon",
        seed=7_000_000,
    ),
    Mutant(
        "seats that are kept for another job are used again",
        "reconcile.in_place:may_restart_in_place",
        "and not _is_awaited(draft, job, attempt)",
        "and True",
        "kept promise",
        seed=17,
    ),
    Mutant(
        "no budget pays for a restart in place",
        "reconcile.unpaid_restarts:charge_user",
        "user_retries=job.user_retries + 1",
        "user_retries=job.user_retries",
        "I17",
        seed=7_000_000,
    ),
    Mutant(
        "an attempt in place has the seats in another order",
        "reconcile.in_place:begin_in_place",
        "        attempt.seats,",
        "        tuple(reversed(attempt.seats)),",
        "I9",
        seed=7_000_000,
    ),
]
