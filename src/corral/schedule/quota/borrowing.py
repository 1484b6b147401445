"""Repayment of borrowed GPU time by queues that share one order by service (decision
0047).

A queue is due the GPUs that it holds and asks for, at most its own quota. A queue that
has held more than its due, weighted by the half-life, owes GPU time. While it owes, its
due is all of its own quota, and the part of it that it does not use pays the debt back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor, inf, log2
from typing import Final

from corral.domain.ids import QueueName
from corral.domain.queue_tree import QueueTree
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import Debt
from corral.schedule.job_groups import Groups
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.fair_share import accrued_seconds, constant_seconds

LEAST: Final = 0.01  # GPUs that count as owed: sums are rounded


@dataclass(frozen=True, slots=True)
class Claim:
    """The numbers of GPUs that a queue, including all queues below it, owns, holds and
    waits for, in thousandths. Preemptible jobs do not count."""

    own: int
    held: int = 0
    asked: int = 0

    def granted(self, millis: int) -> "Claim":
        """Return the claim after `millis` of the GPUs that it waits for were granted."""
        return replace(self, held=self.held + millis, asked=self.asked - millis)


def gpus_of(debt: Debt, at: float, half_life_seconds: float) -> float:
    """Return how many GPUs the debt amounts to at the time `at` (wall clock), if the
    rate of borrowing does not change."""
    decay_fraction = accrued_seconds(
        at - debt.at, half_life_seconds
    ) / constant_seconds(half_life_seconds)
    return debt.gpus * (1.0 - decay_fraction) + debt.rate * decay_fraction


def owing(
    debts: Mapping[QueueName, Debt], tree: QueueTree, at: float
) -> frozenset[QueueName]:
    """Return the queues that owe at that time (wall clock)."""
    return frozenset(
        debt.queue
        for debt in debts.values()
        if debt.queue in tree.below_service
        and gpus_of(debt, at, tree.half_life_seconds) > LEAST
    )


def changes_at(debts: Iterable[Debt], tree: QueueTree, at: float) -> float:
    """Return the first time after `at` when a queue starts or stops owing, if nothing
    else changes (wall clock, in whole seconds, because a head polls); inf if never."""
    below = (debt for debt in debts if debt.queue in tree.below_service)
    return min(
        (
            change_time
            for debt in below
            if (change_time := _changes_at(debt, tree)) > at
        ),
        default=inf,
    )


def claims_of(standing: Standing, waiting: Groups) -> dict[QueueName, Claim]:
    """Return, for each queue that can owe GPU time, how many GPUs it owns, holds and
    waits for."""
    tree = standing.tree
    claims = {
        name: Claim(standing.own_millis(name), standing.lasting_millis(name))
        for name in tree.below_service
    }
    for gangs in waiting if claims else ():
        if not gangs[0].preemptible:
            gang_millis = sum(
                millis
                for _, millis in standing.asked_by(gangs[0], gangs[0].shapes[0], ())
            )
            for queue in tree.path(gangs[0].queue):
                if claim := claims.get(queue.name):
                    claims[queue.name] = replace(
                        claim, asked=claim.asked + len(gangs) * gang_millis
                    )
    return claims


def counted(
    debts: Mapping[QueueName, Debt],
    claims: Mapping[QueueName, Claim],
    at: float,
    half_life_seconds: float,
) -> list[Debt]:
    """Return the debts whose rate of borrowing has changed, with the new rate from that
    time on (wall clock)."""
    counted_shares = []
    for name in sorted({*claims, *debts}):
        empty_debt = Debt(queue=name, at=at)
        previous_debt, claim = debts.get(name, empty_debt), claims.get(name)
        if claim is None:  # it is below no such queue any more
            new_debt = (
                empty_debt
                if previous_debt.gpus or previous_debt.rate
                else previous_debt
            )
        else:
            gpus = gpus_of(previous_debt, at, half_life_seconds)
            rate = _borrowing_rate(claim, owes=gpus > LEAST)
            new_debt = (
                previous_debt
                if rate == previous_debt.rate
                else replace(empty_debt, gpus=gpus, rate=rate)
            )
        if new_debt is not previous_debt:
            counted_shares.append(new_debt)
    return counted_shares


def _borrowing_rate(claim: Claim, *, owes: bool) -> float:
    """Return by how many GPUs the queue now holds more than its due; negative while it
    pays back. A queue without GPUs of its own cannot repay, so its rate is 0."""
    if not claim.own:
        return 0.0
    due = claim.own if owes else min(claim.own, claim.held + claim.asked)
    return (claim.held - due) / MILLIS_PER_GPU


def _changes_at(debt: Debt, tree: QueueTree) -> float:
    """Return the time at which the debt crosses the threshold for owing; inf if never.
    The debt approaches its rate of borrowing: half of the difference is gone after each
    half-life."""
    above, goal = debt.gpus - LEAST, debt.rate - LEAST
    if not goal or (above > 0) == (goal > 0):
        return inf
    return floor(debt.at + tree.half_life_seconds * log2(1.0 - above / goal)) + 1.0
