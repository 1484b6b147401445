"""Whole gangs of real ranks over gloo: killed, stopped, resized, and exact all the
same."""

import os
import random
import resource
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from corral.train.save.verify import verify
from corral.train.step_timer import BEAT_SECONDS
from tests.tools import small_disk
from tests.train.support import Gang, World, shim_at, wait_for

pytestmark = pytest.mark.train


@pytest.mark.parametrize("model", ["ddp", "fsdp"])
def test_killed_at_any_step_it_ends_as_if_undisturbed(
    world: World, tmp_path_factory: pytest.TempPathFactory, model: str
) -> None:
    steps = 60
    calm = World(world.zygote, tmp_path_factory.mktemp("calm"))
    assert (
        calm.launch(1, 4, model=model, steps=steps, interval="1000").wait() == [0] * 4
    )

    chance = random.Random(os.urandom(8))
    attempt = 1
    while True:
        gang = world.launch(
            attempt,
            4,
            model=model,
            steps=steps,
            pause_seconds=0.01,
            resume=world.complete(),
        )
        if attempt == 4:
            assert gang.wait() == [0] * 4, gang.log()
            break
        wait_for(partial(has_more, world, len(world.complete())), gang.log())
        gang.kill(ranks=[chance.randrange(4)])
        gang.kill()
        gang.wait()
        attempt += 1
    assert world.resumed_at() > 0
    assert world.result() == calm.result()
    assert world.samples() == calm.samples()


def test_every_sample_comes_once_an_epoch_whatever_the_number_of_ranks_was(
    world: World,
) -> None:
    length, batch = 96, 2
    plan = [(1, 4, 9), (2, 2, 16), (3, 3, 27)]  # attempt, ranks, until
    for attempt, ranks, until in plan:
        gang = world.launch(
            attempt,
            ranks,
            steps=until,
            resume=world.complete(),
            length=length,
            batch_size=batch,
        )
        assert gang.wait() == [0] * ranks, gang.log()
    seen = [
        index
        for _, by_rank in sorted(world.samples().items())
        for _, indices in sorted(by_rank.items())
        for index in indices
    ]
    assert len(seen) == batch * (4 * 9 + 2 * 7 + 3 * 11)
    for epoch in range(len(seen) // length):
        assert sorted(seen[epoch * length : (epoch + 1) * length]) == list(
            range(length)
        )


@pytest.mark.parametrize("model", ["ddp", "fsdp"])
def test_a_save_of_four_ranks_loads_the_same_on_two_and_on_three(
    world: World, model: str
) -> None:
    assert world.launch(1, 4, model=model, steps=7).wait() == [0] * 4
    before = world.result()
    for attempt, ranks in [(2, 2), (3, 3), (4, 1)]:
        gang = world.launch(
            attempt, ranks, model=model, steps=7, resume=world.complete()
        )
        assert gang.wait() == [0] * ranks, gang.log()
        assert world.resumed_at() == 7
        assert world.result() == before


def test_beats_tell_of_the_first_step_and_the_last_and_few_between(
    world: World, tmp_path: Path
) -> None:
    began = time.monotonic()
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1, 2, steps=60, sockets=[str(shim.path)], pause_seconds=0.005
        )
        assert gang.wait() == [0, 0], gang.log()
        seconds = time.monotonic() - began
        beats = [one for one in shim.of("progress") if one["rank"] == 0]
    assert sorted(one["rank"] for one in shim.of("hello")) == [0, 1]
    assert [beats[0]["step"], beats[-1]["step"]] == [1, 60]
    assert beats[-1]["first_step"] == 0
    assert beats[-1]["until"] == 60
    assert len(beats) <= seconds / BEAT_SECONDS + 2
    assert beats[-1]["loss"] > 0
    assert beats[-1]["samples_per_second"] > 0
    assert beats[-1]["compute_seconds"] >= 60 * 0.005
    assert beats[-1]["save_seconds"] > 0


@pytest.mark.parametrize("model", ["ddp", "fsdp"])
def test_a_rank_tells_how_long_it_waited_for_the_others(
    world: World, tmp_path: Path, model: str
) -> None:
    steps, slower = 12, 0.2  # a collective alone takes some 20 ms where cores are few
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1, 3, model=model, steps=steps, interval="1000", sockets=[str(shim.path)],
            pause_seconds=0.01, slow_rank=1, slow_seconds=slower,
        )  # fmt: skip
        assert gang.wait() == [0] * 3, gang.log()
        newest = {one["rank"]: one for one in shim.of("progress")}
    waited = {rank: one["wait_seconds"] for rank, one in newest.items()}
    assert waited[1] < 0.5 * steps * slower
    for rank in (0, 2):
        assert waited[rank] - waited[1] > 0.5 * steps * slower
        assert waited[rank] <= newest[rank]["compute_seconds"]


def test_a_save_is_reported_by_rank_0_once_it_verifies(
    world: World, tmp_path: Path
) -> None:
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1, 2, steps=30, sockets=[str(shim.path)], pause_seconds=0.01
        )
        wait_for(lambda: shim.of("save"), "a save is reported")
        report = shim.of("save")[0]
        manifest = verify(
            Path(report["path"]),
            attempt=1,
            step=report["step"],
            manifest_sha256=report["manifest_sha256"],
        )
        assert gang.wait() == [0, 0], gang.log()
    assert manifest.size_bytes == report["size_bytes"]
    assert report["seconds"] >= report["stall_seconds"] > 0


def test_old_saves_go_only_when_newer_ones_are_recorded(
    world: World, tmp_path: Path
) -> None:
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1,
            2,
            steps=100_000,
            sockets=[str(shim.path)],
            pause_seconds=0.002,
            env={"CORRAL_CHECKPOINT_KEEP": "2"},
        )
        wait_for(lambda: len(shim.of("save")) >= 5, "five saves")
        steps = [one["step"] for one in shim.of("save")][:5]
        assert {one["step"] for one in world.complete()} >= set(steps)
        shim.tell({"type": "committed", "steps": steps[:3]})
        wait_for(
            lambda: not (world.saves / f"attempt-1/step-{steps[0]}").exists(),
            "one goes",
        )
        left = {one["step"] for one in world.complete()}
        assert left >= set(steps[1:])
        gang.kill()
        gang.wait()


@pytest.mark.parametrize("how", ["request", "SIGTERM"])
def test_asked_to_stop_it_saves_and_ends_with_75(
    world: World, tmp_path: Path, how: str
) -> None:
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1,
            3,
            steps=100_000,
            interval="1000",
            sockets=[str(shim.path)],
            pause_seconds=0.002,
        )
        wait_for(lambda: len(shim.of("progress")) > 3, "it trains")
        if how == "request":
            shim.tell(
                {"type": "stop", "save": True, "grace_seconds": 600, "why": "suspend"}
            )
        else:
            gang.kill(signal.SIGTERM, ranks=[1])
        assert gang.wait() == [75] * 3, gang.log()
    last = max(one["step"] for one in shim.of("progress"))
    assert [one["step"] for one in world.complete()] == [last]
    assert [one["step"] for one in shim.of("save")] == [last]
    again = world.launch(2, 3, steps=last + 5, resume=world.complete())
    assert again.wait() == [0] * 3, again.log()
    assert world.resumed_at() == last


def test_asked_to_stop_without_a_save_it_only_ends(
    world: World, tmp_path: Path
) -> None:
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1,
            2,
            steps=100_000,
            interval="1000",
            sockets=[str(shim.path)],
            pause_seconds=0.002,
        )
        wait_for(lambda: len(shim.of("progress")) > 3, "it trains")
        shim.tell(
            {"type": "stop", "save": False, "grace_seconds": 600, "why": "cancel"}
        )
        assert gang.wait() == [75, 75], gang.log()
    assert world.complete() == []


def test_asked_to_save_it_saves_each_time_and_trains_on(
    world: World, tmp_path: Path
) -> None:
    """As before its max_duration is over: long before the next save is due."""
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            1,
            2,
            steps=100_000,
            interval="1000",
            sockets=[str(shim.path)],
            pause_seconds=0.002,
        )
        wait_for(lambda: len(shim.of("progress")) > 3, "it trains")
        shim.tell({"type": "save"})
        wait_for(lambda: len(shim.of("save")) == 1, "it has saved")
        shim.tell({"type": "save"})
        wait_for(lambda: len(shim.of("save")) == 2, "it has saved again")
        steps = [one["step"] for one in shim.of("save")]
        wait_for(lambda: shim.of("progress")[-1]["step"] > steps[-1], "it trains on")
        gang.kill()
        gang.wait()
    assert sorted(one["step"] for one in world.complete()) == steps


def test_the_second_sigterm_ends_it_at_once(world: World) -> None:
    gang = world.launch(1, 1, steps=10, pause_seconds=60)
    wait_for(world.samples, "the first step, which sleeps")
    gang.kill(signal.SIGTERM)
    wait_for(lambda: "a second SIGTERM" in gang.log(), "the first was taken")
    assert gang.pids[0] not in world.zygote.ended
    gang.kill(signal.SIGTERM)
    assert gang.wait() == [-signal.SIGTERM]


def test_a_shim_that_is_away_costs_nothing_but_the_news(
    world: World, tmp_path: Path
) -> None:
    nobody = str(tmp_path / "nobody.sock")
    gang = world.launch(1, 2, steps=20, sockets=[nobody])
    assert gang.wait() == [0, 0], gang.log()
    assert world.complete()[0]["step"] == 20


def test_outside_corral_a_plain_run_saves_where_asked_and_resumes(world: World) -> None:
    alone = {
        "CORRAL_JOB_ID": "",
        "CORRAL_ATTEMPT": "",
        "CORRAL_RESUME": "",
        "WORLD_SIZE": "1",
    }
    for attempt, until in ((1, 10), (2, 20)):
        gang = world.launch(1, 1, steps=until, env=alone)
        assert gang.wait() == [0], gang.log()
        assert world.complete()[0]["attempt"] == attempt
    assert world.resumed_at() == 10


def test_a_broken_save_is_put_aside_loudly_and_the_one_before_is_used(
    world: World, tmp_path: Path
) -> None:
    assert world.launch(1, 2, steps=20, pause_seconds=0.01).wait() == [0, 0]
    newest, before = world.complete()[:2]
    with (Path(newest["path"]) / "rank-00001-000.bin").open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))
    with shim_at(tmp_path / "shim.sock") as shim:
        gang = world.launch(
            2,
            3,
            steps=20,
            resume=[newest, before],
            sockets=[str(shim.path)],
            interval="1000",
        )
        assert gang.wait() == [0] * 3, gang.log()
        told = [one for one in shim.of("save") if one.get("quarantined")]
    assert world.resumed_at() == before["step"]
    assert [one["step"] for one in told] == [newest["step"]]
    assert "SHA-256" in told[0]["quarantined"]
    assert "DOES NOT VERIFY" in gang.log()
    aside = Path(newest["path"] + ".quarantined")
    assert "SHA-256" in (aside / "why.txt").read_text()


def test_an_older_attempts_save_is_refused_once_a_newer_has_begun(world: World) -> None:
    old = world.launch(1, 2, steps=100_000, pause_seconds=0.002)
    wait_for(lambda: world.complete(), "the old one saves")
    new = world.launch(
        2, 2, steps=100_000, pause_seconds=0.002, resume=world.complete()
    )
    wait_for(
        lambda: any(one["attempt"] == 2 for one in world.complete()),
        "the new one saves",
    )
    wait_for(lambda: "attempt 2 has begun" in old.log(), "the old one is refused")
    step = max(one["step"] for one in world.complete() if one["attempt"] == 1)
    more = len((world.out / "samples-0").read_text().splitlines())
    wait_for(
        lambda: len((world.out / "samples-0").read_text().splitlines()) > more + 40,
        "both go on",
    )
    of_old = world.saves / "attempt-1"
    # Before the kill: whoever is killed while it removes an older save leaves a part of
    # it.
    wait_for(
        lambda: not list(of_old.glob("*.partial")), "the refused save is taken away"
    )
    for gang in (old, new):
        gang.kill()
        gang.wait()
    assert step >= max(
        (one["step"] for one in world.complete() if one["attempt"] == 1), default=0
    )


def test_another_job_in_the_same_directory_is_kept_apart(world: World) -> None:
    assert world.launch(1, 1, steps=5).wait() == [0]
    other = world.launch(1, 1, steps=3, env={"CORRAL_JOB_ID": "j2"})
    assert other.wait() == [0], other.log()
    assert world.resumed_at() == 0
    assert (world.saves / "attempt-1/step-5/manifest.json").exists()
    assert (world.saves / "j2/attempt-1/step-3/manifest.json").exists()


def test_a_save_that_cannot_be_written_leaves_training_and_older_saves_alone(
    world: World,
) -> None:
    gang = world.launch(
        1, 2, steps=100_000, pause_seconds=0.002, interval="0.2", notes=False
    )
    wait_for(world.complete, "a save while there is room")
    limit_file_size(gang, 2048)
    wait_for(lambda: "FAILED: File too large" in gang.log(), "it says so")
    kept = world.complete()
    limit_file_size(gang, resource.RLIM_INFINITY)
    wait_for(
        lambda: world.complete()[0]["step"] > kept[0]["step"],
        "a save when there is room",
    )
    gang.kill()
    gang.wait()
    for one in (world.complete()[0], kept[0]):
        verify(Path(one["path"]), attempt=1, step=one["step"])


@pytest.mark.root
def test_a_full_disk_fails_saves_and_nothing_else(world: World) -> None:
    world.saves.mkdir()
    with small_disk(world.saves, "400k"):
        gang = world.launch(
            1, 2, steps=100_000, pause_seconds=0.002, interval="0.2", notes=False
        )
        wait_for(world.complete, "a save while there is room")
        ballast = world.saves / "ballast"
        fill(ballast)
        wait_for(lambda: "FAILED: No space left" in gang.log(), "it says so")
        ballast.unlink()
        step = world.complete()[0]["step"]
        wait_for(
            lambda: world.complete()[0]["step"] > step, "a save when there is room"
        )
        gang.kill()
        gang.wait()
        newest = world.complete()[0]
        verify(Path(newest["path"]), attempt=1, step=newest["step"])


def has_more(world: World, saves: int) -> bool:
    return len(world.complete()) > saves or world.is_done()


def limit_file_size(gang: Gang, size_bytes: int) -> None:
    for pid in map(helper_of, gang.pids):
        resource.prlimit(
            pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY)
        )


def helper_of(pid: int) -> int:
    """The process that writes the files of this rank's saves."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    tasks = [*Path(f"/proc/{pid}/task").glob("*/children")]
    found = " ".join(task.read_text() for task in [children, *tasks]).split()
    return int(found[0])


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
