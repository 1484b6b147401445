"""The rules of promised starts, taken out one at a time."""

from tests.simulate.mutant import Mutant

PROMISES = [
    Mutant(
        "who runs beyond a promised start has its seats",
        "schedule.promising:Promising._stop",
        "self._now + gang.holds_seconds",
        "self._now",
        "promise",
        seed=19,
    ),
    Mutant(
        "who has no limit has seats that are promised",
        "schedule.promising:Promising._stop",
        "inf if",
        "self._now if",
        "promise",
        seed=217,
    ),
    Mutant(
        "the next pass knows of no promise",
        "schedule.promising:Promising.load",
        "gang is not None",
        "False",
        "promise",
        seed=19,
    ),
    Mutant(
        "a promise is put off and nobody is told",
        "reconcile.promises:_tell",
        'draft.tell("promise_moved", text, job=row.job)',
        "pass",
        "promise",
        seed=164,
    ),
    Mutant(
        "a promise is ended and nobody is told",
        "reconcile.promises:_tell_ended",
        'draft.tell("promise_ended", text, job=ended.job)',
        "pass",
        "promise",
        seed=46,
    ),
    Mutant(
        "one that is put off loses its place among the promised",
        "schedule.promising:Promising._put_off",
        "self._tell(gang, found, before.since)",
        "self._tell(gang, found, self._now)",
        "promise",
        seed=164,
    ),
    Mutant(
        "one whose node is gone loses its place among the promised",
        "reconcile.preempt:_why_ended",
        "if one.latest_start is not None:",
        "if False:",
        "promise",
        seed=19,
    ),
    Mutant(
        "more of an array are promised a start than may run at once",
        "schedule.decide:_coming",
        "return state.promising.of_array(gang) + ",
        "return ",
        "promise",
        seed=108,
    ),
    Mutant(
        "an end is thought to be sooner",
        "reconcile.ends:until_of",
        "attempt.placed_at + START_SECONDS + limit",
        "attempt.placed_at",
        "promise",
        seed=19,
    ),
]
