"""A rank that waits for standard input is named, with what to do about it."""

import pytest

from corral.control.stdin_waits import input_text
from corral.domain.observed_state import Phase
from tests.worlds import Cluster, gang, node


@pytest.mark.parametrize(
    ("waiting", "options"),
    [((None, None), None), ((0, None), "--stdin;"), ((3, 1), "--stdin --rank 1;")],
)
def test_the_first_rank_that_waits_for_input_is_named(
    waiting: tuple[int | None, int | None], options: str | None
) -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang("asks", nodes=2))
    cluster.up(id)
    for on, rank in zip(("n1", "n2"), waiting, strict=True):
        cluster.say(id, Phase.UP, on=on, waits_for_input=rank)
    cluster.tick()
    text = input_text(cluster.world, cluster.facts, cluster.world.jobs[id])
    if options is None:
        assert text == ""
    else:
        first = min(rank for rank in waiting if rank is not None)
        assert text.startswith(
            f"rank {first} waits for standard input: to type it, run: corral attach "
        )
        assert f"corral attach {id} {options} or run: corral stop {id}" in text


def test_a_job_that_does_not_run_is_told_nothing_of_its_input() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang("asks"))
    cluster.say(id, Phase.STARTING, waits_for_input=0)
    cluster.tick()
    assert input_text(cluster.world, cluster.facts, cluster.world.jobs[id]) == ""
