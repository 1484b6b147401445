"""Shares of queues: what is compared has one unit."""

import pytest

from corral.wire.queue_answers import QueueRow


@pytest.mark.parametrize(("form", "share"), [({}, 0.2), ({"weight": 3}, 0.6)])
def test_a_share_is_shown_without_the_weight_by_which_it_is_ordered(
    form: dict[str, object], share: float
) -> None:
    row = QueueRow.model_construct(share=0.2, form=form)
    assert row.share_of_cluster == pytest.approx(share)
