"""What a training loop's beats say of its loss."""

import json
import math

import pytest

from corral.agent.shim.state import progress_record
from corral.train.step_timer import Meter

pytestmark = pytest.mark.train


def test_a_loss_that_is_not_a_number_is_reported_with_its_step_until_it_is_one_again() -> (
    None
):
    meter = Meter(first_step=0, until=100, world_size=1)
    told = []
    for step, loss in enumerate((1.0, math.nan, math.inf, 2.0), start=1):
        meter.log(loss=loss, samples=1)
        fields = json.loads(json.dumps(meter.beat(step, float(step))))
        record = progress_record(fields, at=1.0)
        told.append((record["loss"], record["nan_since"]))
    assert told == [(1.0, None), (None, 2), (None, 2), (2.0, None)]
