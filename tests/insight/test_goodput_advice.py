"""Advice on goodput is computed from what was lost, and there is none without a loss."""

from corral.domain.ledger import UsageAmounts
from corral.insight.goodput_advice import goodput_advice

HOUR = 3600.0


def test_the_best_interval_between_saves_and_its_worth_follow_from_what_saves_cost() -> (
    None
):
    amounts = UsageAmounts(
        allocated_gpu_seconds=100 * HOUR,
        useful_gpu_seconds=80 * HOUR,
        failed_gpu_seconds=16 * HOUR,
        saving_gpu_seconds=0.05 * HOUR,
        failed_gpus=32.0,  # 8 GPUs, 4 times
        saved_gpus=96.0,
        money=200.0,
    )
    (best, *_) = goodput_advice(amounts)
    # stop 1.875 s, mean time to failure 3.125 h: sqrt(2 * 1.875 * 11,250) = 205 s
    assert best.change.startswith("fewer lost steps: a save every 3")
    worth = best.gpu_seconds / HOUR
    assert 14.0 < worth < 16.05
    assert best.money is not None
    assert abs(best.money - 2.0 * worth) < 1e-9
    assert "EUR" in best.text("EUR")


def test_nothing_lost_is_no_advice_and_the_largest_loss_comes_first() -> None:
    assert goodput_advice(UsageAmounts()) == ()
    assert (
        goodput_advice(UsageAmounts(allocated_gpu_seconds=9.0, useful_gpu_seconds=9.0))
        == ()
    )
    amounts = UsageAmounts(
        allocated_gpu_seconds=100.0, hung_gpu_seconds=5.0, slow_gpu_seconds=9.0
    )
    changes = goodput_advice(amounts)
    assert [change.gpu_seconds for change in changes] == [9.0, 5.0]
    assert changes[0].money is None
