"""Rules about what jobs wish of time and place, taken out one at a time."""

from tests.simulate.mutant import Mutant

WISHES = [
    Mutant(
        "a job is let go before its begin",
        "reconcile.waits:held_by",
        "draft.now.wall < begins_at",
        "draft.now.wall < begins_at - 5.0",
        "begin",
    ),
    Mutant(
        "a job waits on after its start_by",
        "reconcile.waits:end_if_too_late",
        "draft.now.wall < starts_by",
        "draft.now.wall < starts_by + 5.0",
        "start_by",
    ),
    Mutant(
        "a job that has run is ended as too late",
        "reconcile.waits:end_if_too_late",
        "or job.started_at is not None",
        "",
        "start_by",
    ),
    Mutant(
        "a job that is too late leaves no receipt",
        "reconcile.waits:end_if_too_late",
        "draft.receipts.append",
        "repr",
        "start_by",
    ),
    Mutant(
        "a constraint is passed over",
        "schedule.gather:may_use",
        "and (not rule.constraints or rule.admits(room.labels))",
        "",
        "constraint",
    ),
    Mutant(
        "an exclusive job comes to others",
        "schedule.room:NodeRoom.seat",
        "self.alone or (exclusive and self.seats)",
        "self.alone",
        "bug exclusive I3",
        seed=2,
    ),
    Mutant(
        "others come to an exclusive job",
        "schedule.room:NodeRoom.take",
        "self.alone += seat.exclusive",
        "pass",
        "bug exclusive I3",
        seed=8,
    ),
    Mutant(
        "a job meets those that it wants to be apart from",
        "schedule.gather:is_apart",
        "return any(room.guests[name] for name in gang.place.apart_from)",
        "return False",
        "apart",
        seed=8,
    ),
    Mutant(
        "a job comes to one that wants to be apart from it",
        "schedule.gather:is_apart",
        "if room.shunned and room.shunned[gang.kin]:",
        "if False:",
        "apart",
        seed=15,
    ),
    Mutant(
        "a gang that requires one rack gets nodes of two",
        "schedule.near:_ways",
        "LEVELS.index(wish.within) if wish.mode == Mode.REQUIRE else _ANYWHERE",
        "_ANYWHERE",
        "require",
        seed=57,
    ),
    Mutant(
        "a job's time is up without a word before",
        "reconcile.loop:_timers",
        "attempt.warned_at is None and ran >= warned_after",
        "False",
        "warn",
    ),
]
