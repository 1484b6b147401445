"""The rules of moving jobs to make room, taken out one at a time."""

from tests.simulate.mutant import Mutant

MOVING = [
    Mutant(
        "a job that cannot save is moved",
        "reconcile.defragmentation:_may_move",
        "spec.checkpoint is not None",
        "True",
        "moved",
        seed=228,
    ),
    Mutant(
        "relocations cost more than an operator allows",
        "schedule.defragment:Relocating._admit_if_affordable",
        "if cost > movables.left_gpu_seconds:",
        "if False:",
        "spent",
        seed=174,
    ),
    Mutant(
        "a job is moved again and again",
        "reconcile.defragmentation:movables_of",
        "if receipt.seen_at > pause_start",
        "if False",
        "pause",
        seed=92,
    ),
    Mutant(
        "a relocation leaves the receipt of a preemption",
        "reconcile.attempt_end:_receipt_kind",
        "return ReceiptKind.RELOCATION if attempt.relocated else ReceiptKind.PREEMPTION",
        "return ReceiptKind.PREEMPTION",
        "receipt",
        seed=6,
    ),
    Mutant(
        "the place that one is moved to is given to another in the same pass",
        "schedule.decide:_make_way",
        "if isinstance(preempted, Relocated):",
        "if False:",
        "kept",
        seed=38,
    ),
    Mutant(
        "the place that one is moved to is given to another while it stops",
        "reconcile.preemption.reservations:on_the_way",
        "victim.gone_at is None",
        "False",
        "kept",
        seed=38,
    ),
]
