"""Detection of nodes that are over-represented in failures of different users. Pure.

The test is a beta-binomial tail. A user whose programs are wrong fails everywhere, and
one node sees far more attempts than another. Neither a count nor a rate is therefore
conclusive. Each user has their own failure rate, estimated from their record on all
other nodes. If the node is like the others, the number of its failed attempts is a sum
of beta-binomials, one per user. The result is the probability of at least the observed
number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.failure_record import NodeRecord, UserRecord
from corral.domain.ids import NodeId, UserName
from corral.domain.node import Node

# that any node at all is wrongly suspected, of all that are looked at once
CHANCE: Final = 0.01
# of one node, with any one user left out: no one alone makes it so
CHANCE_WITHOUT: Final = 0.05
FEWEST_FAILURES: Final = 3
FEWEST_USERS: Final = 2
PRIOR_TRIES: Final = 4.0  # weight of the average rate for a user without a record
PRIOR_RATE: Final = 0.1  # failures per try among a cluster's first attempts
PRIOR_RATE_TRIES: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Suspicion against a node. `chance`: the probability of at least `failures`
    failures on a node that is like the others. `expected`: the number of failures that
    such a node would have."""

    failures: int
    tries: int
    users: int
    expected: float
    chance: float

    @property
    def text(self) -> str:
        return (
            f"{self.failures} of {self.tries} attempts of {self.users} users failed first on "
            f"this node; {self.expected:.1f} would be usual (probability by chance: "
            f"{self.chance:.1g})"
        )


class UserFailureRates:
    """Failure rates of each user over all nodes."""

    def __init__(self, nodes: Mapping[NodeId, Node]) -> None:
        self.nodes = max(1, len(nodes))
        self._tries: Counter[UserName] = Counter()
        self._failures: Counter[UserName] = Counter()
        for node in nodes.values():
            for user in node.record.users:
                self._tries[user.user] += user.tries
                self._failures[user.user] += user.failures

    def without(self, record: NodeRecord) -> tuple["UserRate", ...]:
        """Return, for each user of the node, the failure rate by the records of all
        other nodes."""
        tries = self._tries.total() - sum(user.tries for user in record.users)
        failures = self._failures.total() - record.failures
        usual = (failures + PRIOR_RATE * PRIOR_RATE_TRIES) / (tries + PRIOR_RATE_TRIES)
        return tuple(
            UserRate(
                own=user,
                failed=PRIOR_TRIES * usual + self._failures[user.user] - user.failures,
                went_well=PRIOR_TRIES * (1 - usual)
                + (self._tries[user.user] - user.tries)
                - (self._failures[user.user] - user.failures),
            )
            for user in record.users
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRate:
    """A user's record on the node, and the beta distribution of the user's failure rate
    on other nodes."""

    own: UserRecord
    failed: float
    went_well: float

    @property
    def expected(self) -> float:
        return self.own.tries * self.failed / (self.failed + self.went_well)


def suspicion_of(record: NodeRecord, fleet: UserFailureRates) -> Suspicion | None:
    """Return the suspicion against a node; None if its failures may be chance or may
    come from a single user. `fleet`: the failure rates of users on all nodes."""
    failing = sum(user.failures > 0 for user in record.users)
    if record.failures < FEWEST_FAILURES or failing < FEWEST_USERS:
        return None
    rates = fleet.without(record)
    chance = tail(rates)
    if chance * fleet.nodes > CHANCE:
        return None
    for left_out in [rate for rate in rates if rate.own.failures]:
        if tail([rate for rate in rates if rate is not left_out]) > CHANCE_WITHOUT:
            return None
    return Suspicion(
        failures=record.failures,
        tries=sum(user.tries for user in record.users),
        users=failing,
        expected=sum(rate.expected for rate in rates),
        chance=chance,
    )


def tail(rates: Sequence[UserRate]) -> float:
    """Return the probability that a node like the others has at least as many failures
    of all these users as were observed."""
    failure_count = sum(rate.own.failures for rate in rates)
    below = [1.0] + [0.0] * (failure_count - 1) if failure_count else []
    for rate in rates:
        below = _convolve(
            below,
            beta_binomial(rate.own.tries, rate.failed, rate.went_well, failure_count),
        )
    return max(0.0, 1.0 - sum(below))


def beta_binomial(tries: int, alpha: float, beta: float, below: int) -> list[float]:
    """Return the probabilities of 0, 1, ... failures in `tries` tries.

    Only the probabilities of fewer than `below` failures are returned. Each is computed
    from the previous one, starting with P(0) = B(alpha, beta + n) / B(alpha, beta).
    """
    chance = 1.0
    for number in range(tries):
        chance *= (beta + number) / (alpha + beta + number)
    masses = []
    for failures in range(min(below, tries + 1)):
        masses.append(chance)
        successes = tries - failures
        rest = beta + successes - 1
        chance *= (
            successes * (alpha + failures) / ((failures + 1) * rest)
            if successes
            else 0.0
        )
    return masses


def _convolve(first: Iterable[float], second: Sequence[float]) -> list[float]:
    """Return the distribution of the sum of two counts, given the distribution of each;
    it is cut to the length of `first`."""
    first = list(first)
    sums = [0.0] * len(first)
    for first_count, chance in enumerate(first):
        for second_count, also in enumerate(second[: len(first) - first_count]):
            sums[first_count + second_count] += chance * also
    return sums
