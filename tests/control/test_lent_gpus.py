"""The lent GPUs of a running job: whose they are, and how soon they must be back."""

import pytest

from corral.control.lent_gpus import lent_text
from corral.domain.ids import AttemptNumber, JobId, QueueName, UserName
from corral.domain.lending import Borrow, ReplicaSleep
from corral.domain.service import ScaleRule
from tests.control.services import row, service, spec, world_of

TRAIN = JobId("j9")
BORROW = Borrow(
    job=TRAIN,
    attempt=AttemptNumber(1),
    queue=QueueName("default"),
    owner=UserName("ann"),
    since=1.0,
    gpu_millis=2000,
)


@pytest.mark.parametrize(
    ("within", "bound"), [(10.0, ", and must be ready within 10 s"), (None, "")]
)
def test_a_borrower_learns_whose_gpus_it_uses(within: float | None, bound: str) -> None:
    sleeping = row(1, sleep=ReplicaSleep(since=1.0, borrows=(BORROW,)))
    rule = ScaleRule(back_within_seconds=within)
    world = world_of(service(sleeping, spec=spec(scale=rule)))
    assert lent_text(world, TRAIN) == (
        "it borrows 2 GPUs of service chat, which stops this job when it needs them "
        f"back{bound}"
    )
    assert lent_text(world, JobId("j8")) == ""
