"""The driver against a real Slurm. What it starts in place of an agent is a line of
shell."""

import asyncio
from pathlib import Path

import pytest

from corral.domain.desired_state import Launch
from corral.domain.errors import Trouble, Unsupported
from corral.domain.ids import NodeId
from corral.domain.pilot import part_of
from corral.engines.batch.interfaces import BatchSnapshot, LentNode, Ticket, TicketState
from corral.engines.slurm.driver import SlurmDriver
from corral.wire.node import decode_settings
from tests.engines.slurm.bench import Bench, look_until, parts_for
from tests.engines.slurm.gangs import gang_of
from tests.patience import PATIENCE_SECONDS
from tests.slurm import CPUS, GPU_TYPE, GPUS, MEMORY_MIB, Slurm

MIB = 1024**2


@pytest.fixture(params=["commands", "rest"])
def bench(slurm: Slurm, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(slurm, tmp_path, by_rest=request.param == "rest")


async def look_for_ever(driver: SlurmDriver) -> None:
    while True:
        await driver.look()
        await asyncio.sleep(0.1)


async def hand_over(driver: SlurmDriver, gang: list[Launch]) -> None:
    await driver.submit(gang, parts_for(driver, gang))


def ticket_in(look: BatchSnapshot, state: TicketState) -> Ticket | None:
    return next((ticket for ticket in look.tickets if ticket.state == state), None)


def node_in(look: BatchSnapshot, name: str) -> LentNode:
    return next(node for node in look.nodes if node.node == name)


def test_every_node_is_seen_with_all_that_it_has_and_ports_of_its_own(
    bench: Bench,
) -> None:
    async def story() -> None:
        look = await bench.driver().look()
        assert [node.node for node in look.nodes] == list(bench.slurm.nodes)
        ports = [port for node in look.nodes for port in node.inventory.ports]
        assert len(ports) == len(set(ports))
        for node in look.nodes:
            assert node.inventory.types == (GPU_TYPE,) * GPUS
            assert node.inventory.cpu_millis == CPUS * 1000
            assert node.inventory.memory_bytes == MEMORY_MIB * MIB
            assert (node.down, node.silent, node.address) == ("", False, "127.0.0.1")
            assert (node.foreign.gpus, node.foreign.cpu_millis) == (0, 0)
        assert (look.tickets, look.kept) == ((), ())

    bench.run(story())


def test_a_gang_is_one_batch_job_with_an_agent_on_each_node_and_the_gpus_it_was_granted(
    bench: Bench,
) -> None:
    async def story() -> None:
        driver = bench.driver()
        await driver.look()
        one, two = bench.slurm.nodes[:2]
        gang = gang_of(
            two,
            one,
            gpus=2,
            cpu_millis=1500,
            memory_bytes=100 * MIB,
            limit_seconds=7000.0,
        )
        await hand_over(driver, gang)
        look = await look_until(
            driver,
            lambda look: ticket_in(look, TicketState.RUNNING) and len(bench.notes) == 2,
        )
        said = bench.slurm.run("scontrol", "show", "job", look.tickets[0].handle)
        assert "TimeLimit=01:59:00" in said  # 7000 s, 5 s of grace and 2 min around it
        folder = driver.folders.of(gang[0].key)
        assert bench.notes == [f"{node} 0,1 {folder}/{node}" for node in (one, two)]
        assert ticket_in(look, TicketState.RUNNING) == Ticket(
            key=gang[0].key,
            handle=look.tickets[0].handle,
            state=TicketState.RUNNING,
            nodes=(NodeId(one), NodeId(two)),
        )
        assert look.kept == (gang[0].key,)
        assert {node.foreign.gpus for node in look.nodes} == {0}
        assert {node.foreign.cpu_millis for node in look.nodes} == {0}
        assert {node.foreign.memory_bytes for node in look.nodes} == {0}

    bench.run(story())


def test_files_of_a_part_are_for_its_owner_alone_and_no_secret_is_in_the_script(
    bench: Bench,
) -> None:
    async def story() -> None:
        driver = bench.driver()
        await driver.look()
        gang = gang_of(bench.slurm.nodes[0], gpus=1)
        await hand_over(driver, gang)
        folder = driver.folders.of(gang[0].key)
        part = folder / bench.slurm.nodes[0]
        private = [driver.folders.root, folder, part, *part.iterdir()]
        assert {path.stat().st_mode & 0o077 for path in private} == {0}
        assert {file.name for file in part.iterdir()} == {
            "node.json",
            "token",
            "early.json",
        }
        assert (part / "token").read_bytes() == b"very-secret\n"
        said = bench.slurm.run(
            "scontrol", "show", "job", bench.named(gang[0].key)[0][0]
        )
        assert "secret" not in (folder / "script").read_text() + said
        settings = decode_settings((part / "node.json").read_bytes())
        assert settings.node == part_of(gang[0].seat.node, gang[0].key)
        assert (settings.pretend_gpus, settings.gpu_type) == (1, GPU_TYPE)
        assert (
            Path(settings.head_file).read_text()
            == (bench.dir / "head.json").read_text()
        )

    bench.run(story())


def test_handing_over_again_never_makes_a_second_job_also_when_the_answer_was_lost(
    bench: Bench,
) -> None:
    async def story() -> None:
        driver = bench.driver()
        await driver.look()
        gang = gang_of(bench.slurm.nodes[0])
        await hand_over(driver, gang)
        # of a head that knows nothing of the first
        await hand_over(bench.driver(), gang)
        assert len(bench.named(gang[0].key)) == 1
        # the folder was made and the head died: nothing has been submitted yet
        late = gang_of(bench.slurm.nodes[1], job="j18")
        script = "#!/bin/bash\n#SBATCH --job-name=" + driver.name_of(late[0].key)
        driver.folders.make(late[0].key, parts_for(driver, late), script)
        await hand_over(driver, late)
        assert len(bench.named(late[0].key)) == 1

    bench.run(story())


def test_of_two_batch_jobs_of_one_attempt_only_one_begins_and_the_other_is_taken_back(
    bench: Bench,
) -> None:
    async def story() -> None:
        driver = bench.driver()
        await driver.look()
        gang = gang_of(bench.slurm.nodes[0])
        await hand_over(driver, gang)
        await look_until(driver, lambda look: bench.notes)
        script = (driver.folders.of(gang[0].key) / "script").read_text()
        asked = ("sbatch", "--parsable", "--output=/dev/null")
        second = bench.slurm.run(*asked, "--hold", given=script).strip()
        await look_until(
            driver,
            lambda look: [job for job in bench.slurm.jobs() if job[2] == "CANCELLED"],
        )
        third = bench.slurm.run(*asked, given=script).strip()
        bench.slurm.until(
            lambda: bench.slurm.jobs("-j", third)[0][2] in ("COMPLETED", "CANCELLED"),
            "its end",
        )
        assert bench.slurm.jobs("-j", second)[0][2] == "CANCELLED"
        assert len(bench.notes) == 1
        look = await driver.look()
        assert [ticket.state for ticket in look.tickets] == [TicketState.RUNNING]

    bench.run(story())


def test_what_is_withheld_before_it_begins_begins_never(bench: Bench) -> None:
    async def story() -> None:
        driver, node = bench.driver(), bench.slurm.nodes[0]
        await driver.look()
        foreign = bench.slurm.submit("-w", node, "--gres=gpu:2")
        gang = gang_of(node, gpus=2)
        await hand_over(driver, gang)
        await driver.withhold(gang[0].key)
        await driver.withhold(gang[0].key)
        bench.slurm.run("scancel", foreign)
        bench.slurm.until(
            lambda: bench.named(gang[0].key)[0][2] == "COMPLETED", "its end"
        )
        assert bench.notes == []

    bench.run(story())


def test_what_others_hold_is_seen_and_what_waits_for_it_says_why(bench: Bench) -> None:
    async def story() -> None:
        driver, node = bench.driver(), bench.slurm.nodes[0]
        bench.slurm.submit("-w", node, "--gres=gpu:1", "--mem=500", "--cpus-per-task=3")
        look = await look_until(driver, lambda look: node_in(look, node).foreign.gpus)
        foreign = node_in(look, node).foreign
        assert (foreign.gpus, foreign.cpu_millis) == (1, 3000)
        assert foreign.memory_bytes == 500 * MIB
        await hand_over(driver, gang_of(node, gpus=2))
        look = await look_until(
            driver,
            lambda look: (
                (it := ticket_in(look, TicketState.WAITING))
                and "(Resources)" in it.reason
            ),
        )
        assert "still used by other Slurm jobs" in look.tickets[0].reason

    bench.run(story())


def test_a_cancelled_attempt_leaves_nothing_and_its_folder_goes_when_it_is_forgotten(
    bench: Bench,
) -> None:
    async def story() -> None:
        driver = bench.driver()
        await driver.look()
        gang = gang_of(*bench.slurm.nodes[:2])
        key = gang[0].key
        await hand_over(driver, gang)
        await look_until(driver, lambda look: len(bench.notes) == 2)
        await driver.cancel(key)
        look = await look_until(driver, lambda look: ticket_in(look, TicketState.ENDED))
        assert "cancelled in Slurm" in look.tickets[0].blame
        await driver.cancel(key)  # harmless
        await driver.forget(key)
        await driver.forget(key)
        assert (await driver.look()).kept == ()

    bench.run(story())


def test_what_slurm_will_never_take_is_refused_with_its_words(bench: Bench) -> None:
    async def story() -> None:
        bench.more = {"account": "nobodys", "partition": "nowhere"}
        driver = bench.driver()
        await driver.look()
        with pytest.raises(Unsupported, match="[Ii]nvalid partition"):
            await hand_over(driver, gang_of(bench.slurm.nodes[0]))
        assert (await driver.look()).nodes == ()

    bench.run(story())


def test_a_controller_that_is_away_is_a_trouble_and_forgets_nothing(
    bench: Bench,
) -> None:
    async def story() -> None:
        bench.more = {"command_seconds": 2.0}
        driver = bench.driver()
        await driver.look()
        gang = gang_of(bench.slurm.nodes[0])
        await hand_over(driver, gang)
        bench.slurm.stop_controller()
        try:
            with pytest.raises(Trouble, match="did not answer|failed|no word"):
                await driver.look()
            with pytest.raises(Trouble):
                await hand_over(driver, gang_of(bench.slurm.nodes[1], job="j18"))
        finally:
            bench.slurm.start_controller()
        # beside the other, where Slurm takes that after its controller is back
        key = gang[0].key
        await look_until(
            driver, lambda look: any(one.key == key for one in look.tickets)
        )

    bench.run(story())


def test_a_preempted_batch_job_is_over_and_does_not_begin_again(bench: Bench) -> None:
    async def story() -> None:
        driver, node = bench.driver(), bench.slurm.nodes[0]
        await driver.look()
        await hand_over(driver, gang_of(node, gpus=2))
        await look_until(driver, lambda look: bench.notes)
        bench.slurm.submit("-p", "urgent", "-w", node, "--gres=gpu:2")
        look = await look_until(driver, lambda look: ticket_in(look, TicketState.ENDED))
        assert look.tickets[0].blame == "Slurm preempted the batch job for another job"
        assert len(bench.notes) == 1

    bench.run(story())


def test_a_dead_node_is_proven_dead_and_its_jobs_ended_by_it(bench: Bench) -> None:
    async def story() -> None:
        driver, node = bench.driver(), bench.slurm.nodes[3]
        await driver.look()
        await hand_over(driver, gang_of(node))
        await look_until(driver, lambda look: bench.notes)
        bench.slurm.kill_node(node)
        bench.slurm.call_down(node, "power lost")
        look = await look_until(
            driver,
            lambda look: (
                node_in(look, node).down and ticket_in(look, TicketState.ENDED)
            ),
        )
        assert node_in(look, node).down == (
            f"Slurm reports node {node} as DOWN: power lost"
        )
        assert "failed" in look.tickets[0].blame
        assert not node_in(look, bench.slurm.nodes[0]).down

    bench.run(story())


@pytest.mark.parametrize("bench", ["rest"], indirect=True)
def test_a_token_that_is_not_taken_is_told_with_its_end_and_the_next_step(
    bench: Bench,
) -> None:
    async def story() -> None:
        driver = bench.driver()
        await driver.look()
        token = bench.dir / "jwt"
        old = bench.slurm.run("scontrol", "token", "lifespan=1")
        token.write_text(old)
        with pytest.raises(Trouble, match="valid until 20") as told:
            await asyncio.wait_for(look_for_ever(driver), PATIENCE_SECONDS)
        assert f"scontrol token lifespan=86400 > {token}" in told.value.hint
        token.write_text(bench.slurm.run("scontrol", "token", "lifespan=3600"))
        await driver.look()  # a new one is taken without more

    bench.run(story())
