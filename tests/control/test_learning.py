"""What a head learns from the jobs that end, the next one knows as well."""

from corral.control.runtime_learning import HeadLearning
from corral.domain.attempt import Exit
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.observed_state import Phase, Seen
from corral.domain.world import Changes
from corral.reconcile import Now
from corral.schedule.prediction.runtime_model import MOST_ENDED, Class
from tests.control.test_control import Head, story
from tests.worlds import gang

ONE, FOUR = Class(DEFAULT_QUEUE, 1000), Class(DEFAULT_QUEUE, 4000)


def ranks(head: Head, learning: HeadLearning) -> list[float]:
    late = Now(wall=head.clock.wall(), serving=1e6)  # enough to look anew
    learning.take_in(head.control.world, Changes(), late)
    table = learning.table
    assert table is not None
    return [
        table.rank_seconds(one, at) for one in (ONE, FOUR) for at in (0.0, 90.0, 4000.0)
    ]


async def ran(head: Head, name: str, seconds: float, *, nodes: int) -> None:
    """One that is up at once, and ends by itself after so long."""
    id = await head.submit(
        gang(name, gpus=2 if nodes == 2 else 1, nodes=nodes), key=name
    )
    attempt = head.control.world.attempts[id]

    def say(phase: Phase, *exits: tuple[int, Exit]) -> None:
        seen = Seen(key=(id, attempt.number), phase=phase, exits=exits)
        head.seen = {node: (seen,) for node in attempt.nodes}

    say(Phase.UP)
    await head.step()
    await head.step(seconds)
    say(Phase.ENDED, (0, Exit(code=0, at=head.clock.wall())))
    await head.step()
    assert id in head.control.world.ended


def test_a_new_head_knows_what_the_old_one_has_learned() -> None:
    async def tell() -> None:
        head = await Head().start()
        unknowing = ranks(head, head.control.learning)[0]
        for number in range(4):
            await ran(head, f"short-{number}", 5.0, nodes=1)
        await ran(head, "long", 3000.0, nodes=2)
        old = ranks(head, head.control.learning)
        assert old[0] < unknowing, "who is new ends soon"
        assert old[1] > old[0], "and who has run for longer than most does not"
        runs = await head.store.runs(limit=MOST_ENDED)
        assert old == ranks(
            head, HeadLearning(runs, head.control.world, head.control.now())
        )

    story(tell())
