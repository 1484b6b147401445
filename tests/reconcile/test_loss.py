"""A training loop whose loss is not a number: it is recorded once, told, and of no
use."""

from dataclasses import replace

import pytest

from corral.domain.cause import Cause
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import Phase, Progress
from corral.domain.receipt import Receipt, ReceiptKind
from corral.insight.attempt_spans import spans
from tests.worlds import Cluster, gang, node


def beat(cluster: Cluster, id: JobId, step: int, nan_since: int | None) -> list[str]:
    """Report the step; the kinds of the events that follow."""
    cluster.say(id, Phase.UP, progress=Progress(step=step, nan_since=nan_since))
    return [event.kind for event in cluster.tick(seconds=10.0).changes.events]


def test_it_is_recorded_with_its_step_told_once_and_over_with_the_next_number() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang())
    cluster.up(id, step=10)
    assert "loss_nan" in beat(cluster, id, 45, 40)
    attempt = cluster.world.attempts[id]
    assert (attempt.nan_step, attempt.nan_at) == (40, cluster.wall)
    assert "loss_nan" not in beat(cluster, id, 60, 40)
    assert beat(cluster, id, 70, None) == []
    assert cluster.world.attempts[id].nan_at is None


def test_what_follows_is_of_no_use_in_the_ledger() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang())
    cluster.up(id)
    attempt = replace(
        cluster.world.attempts[id],
        placed_at=0.0, running_at=10.0, first_step_at=20.0, ended_at=120.0, nan_at=50.0,
    )  # fmt: skip
    found: dict[str, float] = {}
    for one in spans(attempt, (), until=500.0):
        seconds = one.share * (one.until - one.since)
        found[one.amount] = found.get(one.amount, 0.0) + seconds
    assert found == pytest.approx(
        {
            "starting_gpu_seconds": 20.0,
            "useful_gpu_seconds": 30.0,
            "failed_gpu_seconds": 70.0,
        }
    )


def test_a_receipt_tells_what_stopping_took_from_what_was_lost() -> None:
    receipt = Receipt(
        job=JobId("j1"), attempt=AttemptNumber(1), kind=ReceiptKind.SUSPENSION, cause=Cause.REQUEST,
        culprit="", evidence="", steps_lost=0, gpu_seconds_lost=33.6, seen_at=0.0,
        resumed_from_step=874, seconds_lost=0.0,
    )  # fmt: skip
    assert (
        receipt.loss
        == "saved at step 874, lost no work (33.6 GPU-seconds spent stopping)"
    )
    lost = replace(receipt, steps_lost=3, seconds_lost=4.0)
    assert "3 steps, 33.6 GPU-seconds since its last save" in lost.loss
