"""The rules of hangs, taken out one at a time."""

from tests.simulate.mutant import Mutant

HANGS = [
    Mutant(
        "a hang is recorded of ranks that have made a step",
        "reconcile.hangs:hang_reports",
        "{} if is_out_of_date else reports",
        "reports",
        "I7 I14",
        seed=2_000_000,
    ),
    Mutant(
        "a gang is judged by the first node that reports",
        "reconcile.hangs:gang_verdict",
        "if missing and is_final and _may_still_report(draft, attempt, reports):",
        "missing = []\n    if False:",
        "I14",
        seed=2_000_000,
    ),
    Mutant(
        "a hang is always the cluster's",
        "reconcile.hangs:_end_attempt",
        "is_users = record.is_charged_to_user",
        "is_users = False",
        "I17",
        seed=2_000_000,
    ),
    Mutant(
        "the second hang at one step is the user's",
        "reconcile.hangs:_end_attempt",
        "is_users = record.is_charged_to_user",
        "is_users = record.times >= 2",
        "I17",
        seed=2_000_000,
    ),
    Mutant(
        "a hung attempt puts its node at fault",
        "reconcile.hangs:_end_attempt",
        "node=record.node if record.blames_machine else None",
        "node=record.node",
        "I14",
        seed=2_000_000,
    ),
    Mutant(
        "what stopped ranks exit with explains a hang",
        "reconcile.attempts:blame",
        "current.cause == Cause.INFRA or current.failure == FailureKind.STALL",
        "current.cause == Cause.INFRA and current.failure != FailureKind.STALL",
        "I17 I14",
        seed=2_000_000,
    ),
]
