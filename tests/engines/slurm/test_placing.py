"""The driver where a real Slurm places. What it starts in place of an agent is a line
of shell."""

import asyncio
from pathlib import Path

import pytest

from corral.domain.errors import Unsupported
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import JobSpec
from corral.domain.observed_state import AttemptKey
from corral.domain.resources import Resources
from corral.engines.batch.interfaces import BatchSnapshot, TicketState
from corral.engines.slurm.external_placement import SlurmPlacingDriver
from tests.engines.slurm.bench import Bench, look_until, parts_for
from tests.engines.slurm.gangs import gang_of
from tests.slurm import GPU_TYPE, Slurm

RUNNING, WAITING, ENDED = TicketState.RUNNING, TicketState.WAITING, TicketState.ENDED


class Placing(Bench):
    def placer(self) -> SlurmPlacingDriver:
        driver = self.driver(SlurmPlacingDriver)
        assert isinstance(driver, SlurmPlacingDriver)
        return driver


@pytest.fixture(params=["commands", "rest"])
def bench(slurm: Slurm, tmp_path: Path, request: pytest.FixtureRequest) -> Placing:
    return Placing(slurm, tmp_path, by_rest=request.param == "rest")


def one(
    job: str = "j17", *, nodes: int = 1, gpus: int = 0, **more: object
) -> ExternalCandidate:
    resources = Resources(gpu_millis=gpus * 1000, gpu_type=GPU_TYPE if gpus else None)
    spec = JobSpec(name="tiny", run="true", nodes=nodes, resources=resources)
    return ExternalCandidate(key=(JobId(job), AttemptNumber(1)), spec=spec, **more)  # type: ignore[arg-type]


def of_array(*indices: int, limit: int | None = None) -> list[ExternalCandidate]:
    return [
        ExternalCandidate(
            key=(JobId(f"j9_{index}"), AttemptNumber(1)),
            spec=JobSpec(
                name=f"many_{index}",
                run="true",
                array_index=index,
                array_limit=limit,
                resources=Resources(cpu_millis=1000),
            ),
            array=JobId("j9"),
        )
        for index in indices
    ]


def states(look: BatchSnapshot) -> dict[str, TicketState]:
    return {str(ticket.key[0]): ticket.state for ticket in look.tickets}


async def begin(
    driver: SlurmPlacingDriver, look: BatchSnapshot, key: AttemptKey, gpus: int = 0
) -> None:
    """As the head does: what its agents need comes to the nodes that Slurm has
    chosen."""
    (nodes,) = [ticket.nodes for ticket in look.tickets if ticket.key == key]
    gang = gang_of(*nodes, job=key[0], gpus=gpus)
    await driver.equip(gang, parts_for(driver, gang))
    await driver.equip(gang, parts_for(driver, gang))  # again is harmless


def test_slurm_chooses_the_nodes_and_nothing_begins_before_it_is_equipped(
    bench: Placing,
) -> None:
    async def story() -> None:
        driver = bench.placer()
        await driver.look()
        gang = one(nodes=2, gpus=2, excluded=(NodeId(bench.slurm.nodes[0]),))
        await driver.ask([gang])
        look = await look_until(driver, lambda look: states(look) == {"j17": RUNNING})
        chosen = look.tickets[0].nodes
        assert len(chosen) == 2
        assert bench.slurm.nodes[0] not in chosen
        assert bench.notes == []
        await begin(driver, look, gang.key, gpus=2)
        await look_until(driver, lambda look: len(bench.notes) == 2)
        folder = driver.folders.of(gang.key)
        assert bench.notes == [f"{node} 0,1 {folder}/{node}" for node in chosen]

    bench.run(story())


def test_asking_again_makes_no_second_batch_job_also_when_the_answer_was_lost(
    bench: Placing,
) -> None:
    async def story() -> None:
        driver = bench.placer()
        await driver.look()
        asked = [one("j17"), *of_array(0, 2)]
        for group in (asked[:1], asked[1:], asked[:1], asked[1:]):
            await driver.ask(group)
        await bench.placer().ask(asked[1:])  # of a head that knows nothing of the first
        look = await look_until(driver, lambda look: len(look.tickets) == 3)
        assert {str(key[0]) for key in look.kept} == {"j17", "j9_0", "j9_2"}
        names = ",".join({driver.name_of(one.key) for one in asked})
        assert len({job[0] for job in bench.slurm.jobs("-r", "-n", names)}) == 3

    bench.run(story())


def test_indices_go_as_one_array_with_its_limit_and_each_is_cancelled_by_itself(
    bench: Placing,
) -> None:
    async def story() -> None:
        driver = bench.placer()
        await driver.look()
        group = of_array(1, 4, 7, limit=2)
        await driver.ask(group)
        look = await look_until(
            driver,
            lambda look: sorted(states(look).values()) == [RUNNING, RUNNING, WAITING],
        )
        (waiting,) = [ticket for ticket in look.tickets if ticket.state == WAITING]
        assert "its array runs as many tasks as its limit allows" in waiting.reason
        assert len({ticket.handle.partition("_")[0] for ticket in look.tickets}) == 1
        assert sorted(int(t.handle.partition("_")[2]) for t in look.tickets) == [
            1,
            4,
            7,
        ]
        first = next(ticket.key for ticket in look.tickets if ticket.state == RUNNING)
        await begin(driver, look, first)
        await look_until(driver, lambda look: len(bench.notes) == 1)
        await driver.cancel(first)
        look = await look_until(
            driver,
            lambda look: sorted(states(look).values()) == [ENDED, RUNNING, RUNNING],
        )
        assert states(look)[str(first[0])] == ENDED

    bench.run(story())


def test_one_that_was_taken_back_and_asked_anew_is_another_batch_job(
    bench: Placing,
) -> None:
    async def story() -> None:
        driver = bench.placer()
        await driver.look()
        for node in bench.slurm.nodes:
            bench.slurm.submit("-w", node, "--exclusive")
        await driver.ask([one()])
        look = await look_until(driver, lambda look: states(look) == {"j17": WAITING})
        await driver.cancel(one().key)
        await look_until(driver, lambda look: states(look) == {"j17": ENDED})
        await driver.forget(one().key)
        assert (await driver.look()).tickets == ()
        await driver.ask([one()])
        again = await look_until(driver, lambda look: states(look) == {"j17": WAITING})
        assert again.tickets[0].handle != look.tickets[0].handle

    bench.run(story())


def test_what_slurm_repeats_begins_nothing_once_its_folder_is_gone(
    bench: Placing,
) -> None:
    async def story() -> None:
        driver = bench.placer()
        await driver.look()
        await driver.ask([one()])
        look = await look_until(driver, lambda look: states(look) == {"j17": RUNNING})
        handle = look.tickets[0].handle
        await driver.forget(one().key)
        await asyncio.to_thread(
            bench.slurm.until,
            lambda: bench.slurm.jobs("-j", handle)[0][2] in ("COMPLETED", "FAILED"),
            "its end",
        )
        assert bench.notes == []

    bench.run(story())


def test_what_slurm_does_not_take_is_refused_with_its_words(bench: Placing) -> None:
    async def story() -> None:
        bench.more = {"account": "nobodys", "partition": "nowhere"}
        driver = bench.placer()
        await driver.look()
        with pytest.raises(Unsupported, match="[Ii]nvalid partition"):
            await driver.ask([one()])

    bench.run(story())
