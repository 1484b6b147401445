"""What queues that share one line by service owe: held against due, as the half-life
weighs."""

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Resources, Shape
from corral.domain.usage import Debt
from corral.schedule import Groups
from corral.schedule.quota import borrowing as rules
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.borrowing import LEAST, Claim, changes_at, gpus_of, owing
from corral.schedule.quota.fair_share import ResourceAmounts
from corral.schedule.waiting import Waiting
from tests.simulate.mutant import Mutant
from tests.simulate.mutants import breed

A, B, TOP, INNER = (QueueName(name) for name in ("a", "b", "top", "inner"))
ANN = UserName("ann")
NOW, HALF_LIFE = 1e6, 3600.0


def tree(policy: Policy = Policy.ATTAINED) -> QueueTree:
    """Two queues of 4 GPUs below one, the first a level deeper."""
    own = ((ANY_TYPE, 4000),)
    below = [
        Queue(name=INNER, parent=TOP, nominal=own),
        Queue(name=A, parent=INNER, nominal=own),
        Queue(name=B, parent=TOP, nominal=own),
    ]
    top = Queue(name=TOP, nominal=((ANY_TYPE, 8000),), policy=policy)
    return whole_tree([top, *below], half_life_seconds=HALF_LIFE)  # fmt: skip


def standing(
    held: dict[QueueName, int], below: QueueTree | None = None, *, preemptible: bool = False,
    stripped: frozenset[QueueName] = frozenset(),
) -> Standing:  # fmt: skip
    found = Standing(
        below or tree(),
        capacity=ResourceAmounts(8.0),
        kinds=["h100"],
        stripped=stripped,
    )
    for queue, gpus in held.items():
        some = (("h100", gpus * 1000),)
        found.take(
            QuotaHolding(
                queue=queue, user=ANN, gpu_millis=some, preemptible=preemptible
            )
        )
    return found


def waiting(asked: dict[QueueName, int], *, preemptible: bool = False) -> Groups:
    """Gangs of one GPU each."""
    shapes = (Shape(nodes=1, resources=Resources(gpu_millis=1000)),)
    every = [(queue, number) for queue, gpus in asked.items() for number in range(gpus)]
    return Groups(
        Waiting(job=JobId(f"{queue}{number}"), shapes=shapes, priority=0, order=(number, 0),
                queue=queue, user=ANN, preemptible=preemptible)
        for queue, number in every
    )  # fmt: skip


def count(
    debts: dict[QueueName, Debt], held: Standing, asked: Groups, at: float = NOW
) -> list[Debt]:
    return rules.counted(debts, rules.claims_of(held, asked), at, HALF_LIFE)


def rates(
    held: dict[QueueName, int], asked: dict[QueueName, int], owed: float = 0.0
) -> dict[QueueName, float]:
    """Where each queue has owed so much until now."""
    before = {
        queue: Debt(queue=queue, at=NOW, gpus=owed, rate=9.0) for queue in (A, B, INNER)
    }
    found = count(before, standing(held), waiting(asked))
    assert all(debt.gpus == pytest.approx(owed) for debt in found)
    return {debt.queue: debt.rate for debt in found}


def test_a_queue_is_due_what_it_holds_and_asks_for_and_no_more_than_its_own() -> None:
    assert rates({}, {}) == {A: 0.0, B: 0.0, INNER: 0.0}
    assert rates({A: 1}, {B: 3})[B] == -3.0, "it asks for three and has none"
    assert rates({A: 7}, {B: 9})[B] == -4.0, "more than its own it is not due"
    assert rates({A: 7}, {A: 5})[A] == 3.0, "so much it has borrowed"
    assert rates({A: 3}, {})[A] == 0.0, "what it does not ask for it is not due"


def test_who_owes_is_due_all_of_its_own_so_that_what_it_leaves_pays_back() -> None:
    assert rates({A: 1}, {}, owed=1.0)[A] == -3.0
    assert rates({A: 7}, {}, owed=1.0)[A] == 3.0


def test_a_queue_above_counts_what_is_held_and_asked_for_below_it() -> None:
    assert rates({A: 1}, {A: 2})[INNER] == -2.0
    assert rates({A: 6}, {})[INNER] == 2.0


def test_preemptible_jobs_are_on_what_nobody_owns_and_owe_nothing() -> None:
    held = standing({A: 8}, preemptible=True)
    assert not count({}, held, waiting({B: 3}, preemptible=True))


def test_who_has_nothing_of_its_own_owes_nothing_more() -> None:
    held = standing({A: 8}, stripped=frozenset({A, INNER}))
    before = {A: Debt(queue=A, at=NOW - HALF_LIFE, gpus=2.0, rate=4.0)}
    after = count(before, held, Groups())
    assert [one.rate for one in after] == [0.0]
    assert after[0].gpus == pytest.approx(3.0)


def test_a_debt_halves_in_a_half_life_and_grows_towards_what_is_held_beyond_the_due() -> (
    None
):
    assert gpus_of(
        Debt(queue=A, at=0.0, gpus=4.0), HALF_LIFE, HALF_LIFE
    ) == pytest.approx(2.0)
    assert gpus_of(
        Debt(queue=A, at=0.0, rate=4.0), HALF_LIFE, HALF_LIFE
    ) == pytest.approx(2.0)
    assert gpus_of(Debt(queue=A, at=0.0, rate=4.0), 1e9, HALF_LIFE) == pytest.approx(
        4.0
    )
    assert gpus_of(Debt(queue=A, at=5.0, gpus=4.0), 0.0, HALF_LIFE) == 4.0, (
        "clocks step back"
    )


def test_what_goes_on_as_it_did_is_not_written_again() -> None:
    held, asks = standing({A: 6}), waiting({B: 1})
    first = {debt.queue: debt for debt in count({}, held, asks)}
    assert first.keys() == {A, B, INNER}
    assert not count(first, held, asks, NOW + 60.0)


def test_what_is_granted_is_held_and_asked_for_no_more() -> None:
    assert Claim(4000, held=1000, asked=3000).granted(2000) == Claim(
        4000, held=3000, asked=1000
    )


def test_only_queues_below_one_that_goes_by_service_owe() -> None:
    owes = {A: Debt(queue=A, at=NOW, gpus=1.0, rate=1.0)}
    assert owing(owes, tree(), NOW) == {A}
    plain = tree(Policy.DEFAULT)
    assert not owing(owes, plain, NOW)
    [cleared] = count(owes, standing({A: 8}, plain), Groups())
    assert (cleared.gpus, cleared.rate) == (0.0, 0.0), (
        "no old debt comes back with the policy"
    )
    assert not count({A: cleared}, standing({A: 8}, plain), Groups(), NOW + 1.0)


def test_who_owes_as_little_as_sums_are_rounded_by_does_not() -> None:
    assert not owing({A: Debt(queue=A, at=NOW, gpus=LEAST)}, tree(), NOW)
    assert owing({A: Debt(queue=A, at=NOW, gpus=1.01 * LEAST)}, tree(), NOW)


@given(st.floats(-9.0, 9.0), st.integers(-9, 9))
@example(LEAST, 1)
@example(LEAST, -1)
def test_when_it_changes_who_owes_is_known_before(gpus: float, rate: int) -> None:
    debts = {A: Debt(queue=A, at=NOW, gpus=gpus, rate=float(rate))}
    then = changes_at(debts.values(), tree(), NOW)
    late = NOW + 1e3 * HALF_LIFE
    if then == inf:
        assert owing(debts, tree(), NOW) == owing(debts, tree(), late)
        return
    assert owing(debts, tree(), NOW) == owing(debts, tree(), max(NOW, then - 1.01))
    assert owing(debts, tree(), NOW) != owing(debts, tree(), then)
    assert changes_at(debts.values(), tree(), then) == inf, "it changes once"


MUTANTS = [
    (Mutant("the due has no bound", "schedule.quota.borrowing:_borrowing_rate",
            "min(claim.own, claim.held + claim.asked)", "claim.held + claim.asked", ""),
     test_a_queue_is_due_what_it_holds_and_asks_for_and_no_more_than_its_own),
    (Mutant("what is asked for is not due", "schedule.quota.borrowing:_borrowing_rate",
            "claim.held + claim.asked", "claim.held", ""),
     test_a_queue_is_due_what_it_holds_and_asks_for_and_no_more_than_its_own),
    (Mutant("who owes is due what it asks for", "schedule.quota.borrowing:_borrowing_rate",
            "claim.own if owes else", "", ""),
     test_who_owes_is_due_all_of_its_own_so_that_what_it_leaves_pays_back),
    (Mutant("preemptible jobs ask", "schedule.quota.borrowing:claims_of",
            "if not gangs[0].preemptible:", "if True:", ""),
     test_preemptible_jobs_are_on_what_nobody_owns_and_owe_nothing),
    (Mutant("what is stripped grows its debt", "schedule.quota.borrowing:_borrowing_rate",
            "if not claim.own:", "if False:", ""),
     test_who_has_nothing_of_its_own_owes_nothing_more),
    (Mutant("every row is written each time", "schedule.quota.borrowing:counted",
            "rate == previous_debt.rate", "False", ""),
     test_what_goes_on_as_it_did_is_not_written_again),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mutant", "missed_by"), MUTANTS, ids=[one.name for one, _ in MUTANTS]
)
def test_a_rule_taken_out_is_missed(
    mutant: Mutant, missed_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breed(mutant, monkeypatch)
    with pytest.raises(AssertionError):
        missed_by()
