"""Slurm with a book of accounts: what has left the queue is known from it, and limits
are told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.engines.batch.interfaces import TicketState
from corral.engines.slurm.external_placement import SlurmPlacingDriver
from tests.engines.slurm.bench import Bench, look_until, parts_for
from tests.engines.slurm.gangs import gang_of
from tests.engines.slurm.test_placing import of_array, states
from tests.slurm import Slurm, cluster
from tests.slurm_book import Book

pytestmark = [pytest.mark.xdist_group("slurm-book"), pytest.mark.soak]


@pytest.fixture(scope="module")
def kept() -> Iterator[Slurm]:
    book = Book()
    with cluster(*book.lines, nodes=2, before=book.start) as slurm:
        yield slurm


@pytest.fixture
def bench(kept: Slurm, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(kept, tmp_path)
    kept.clear()


async def until_gone(slurm: Slurm) -> None:
    """The queue shows nothing any more: Slurm forgets what is over after some
    seconds."""
    await asyncio.to_thread(slurm.until, lambda: slurm.jobs() == [], "an empty queue")


def test_an_attempt_that_ended_while_nobody_looked_is_told_from_the_book(
    bench: Bench,
) -> None:
    async def story() -> None:
        bench.agent = 'case "$5" in */j1.1/*) exit 3;; esac; sleep 600'
        driver = bench.driver()
        await driver.look()
        first, second = bench.slurm.nodes
        cancelled = gang_of(second, job="j2")
        for gang in (gang_of(first, job="j1"), cancelled):
            await driver.submit(gang, parts_for(driver, gang))
        await look_until(driver, lambda look: len(bench.notes) == 2)
        bench.slurm.run("scancel", f"--name={driver.name_of(cancelled[0].key)}")
        await until_gone(bench.slurm)
        look = await look_until(bench.driver(), lambda look: len(look.tickets) == 2)
        said = {str(ticket.key[0]): ticket for ticket in look.tickets}
        assert {ticket.state for ticket in look.tickets} == {TicketState.ENDED}
        assert "cancelled in Slurm" in said["j2"].blame
        assert said["j2"].nodes == (bench.slurm.nodes[1],)

    bench.run(story())


def test_the_tasks_of_an_array_are_told_apart_in_the_book(bench: Bench) -> None:
    async def story() -> None:
        driver = bench.driver(SlurmPlacingDriver)
        assert isinstance(driver, SlurmPlacingDriver)
        await driver.look()
        await driver.ask(of_array(2, 5))
        await look_until(
            driver, lambda look: list(states(look).values()) == ["running"] * 2
        )
        bench.slurm.run("scancel", f"--name={driver.name_of(of_array(2)[0].key)}")
        await until_gone(bench.slurm)
        look = await look_until(
            bench.driver(SlurmPlacingDriver), lambda look: look.tickets
        )
        assert states(look) == dict.fromkeys(("j9_2", "j9_5"), TicketState.ENDED)
        assert all("cancelled in Slurm" in ticket.blame for ticket in look.tickets)

    bench.run(story())


@pytest.mark.parametrize(
    ("set_by", "said"),
    [
        (
            ("modify", "account", "team", "set", "GrpJobs=1"),
            "a limit of its account is reached",
        ),
        (
            ("modify", "qos", "normal", "set", "MaxJobsPerUser=1"),
            "a limit of its quality of service is reached",
        ),
    ],
)
def test_a_limit_of_an_account_or_of_its_quality_of_service_is_why_it_waits(
    bench: Bench, set_by: tuple[str, ...], said: str
) -> None:
    async def story() -> None:
        bench.more = {"account": "team"}
        driver = bench.driver()
        await driver.look()
        for node, job in zip(bench.slurm.nodes, ("j1", "j2"), strict=True):
            gang = gang_of(node, job=job)
            await driver.submit(gang, parts_for(driver, gang))
        look = await look_until(
            driver, lambda look: [one for one in look.tickets if said in one.reason]
        )
        assert sorted(ticket.state for ticket in look.tickets) == ["running", "waiting"]

    bench.slurm.run("sacctmgr", "-i", *set_by)
    try:
        bench.run(story())
    finally:
        bench.slurm.run(
            "sacctmgr", "-i", *set_by[:-1], f"{set_by[-1].partition('=')[0]}=-1"
        )
