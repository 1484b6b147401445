"""A part with its shim's spec in its folder: its ranks wait for no head; its agent
finds them."""

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.agent.launcher import PID_FILE
from corral.agent.pilot.early_launch import GRANTED, early_in, laid_out
from corral.agent.pilot.start import PREFIX
from corral.agent.processes import LocalProcess
from corral.domain.attempt import Seat
from corral.domain.desired_state import Launch
from corral.domain.ids import NodeId
from corral.domain.observed_state import Phase
from corral.domain.pilot import part_of
from corral.wire.node import NodeSettings, encode_settings
from corral.wire.shim_launch import early_of
from corral.wire.shim_spec import EARLY_FILE, WORKDIR_FILE
from tests.agent.bench import key_of, launch_of, stop_of
from tests.agent.fakehead import TOKEN, FakeHead

KEY = key_of(7)
PART = part_of(NodeId("gpu01"), KEY)


def folder_in(
    place: Path, launch: Launch, *, early: bool = True, **more: object
) -> Path:
    """A part's folder, as an engine makes it."""
    source = place / "cluster" / "part"
    source.mkdir(mode=0o700, parents=True)
    told = {
        "node": PART, "head_file": str(place / "head.json"), "pretend_gpus": 1,
        "isolation": "hide", "hidden": (str(place / "cluster"),), "containment": "engine", **more,
    }  # fmt: skip
    settings = NodeSettings(**told)  # type: ignore[arg-type]
    files = {"node.json": encode_settings(settings), "token": TOKEN.encode()}
    if early:
        written = early_of(launch, settings, has_workdir=True)
        assert written is not None
        files[EARLY_FILE] = written.encode()
    for name, content in files.items():
        (source / name).touch(mode=0o600)
        (source / name).write_bytes(content)
    return source


class Part:
    """The process of a part, and the head that it will find."""

    def __init__(self, place: Path, source: Path) -> None:
        self.head = FakeHead(file=place / "head.json", node=PART)
        own = place / "tmp"
        own.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "corral.agent", "--part", str(source)],
            env={**os.environ, "TMPDIR": str(own)},
            start_new_session=True,
        )
        self.own = own

    async def until(self, true: object) -> None:
        await self.head.until(true)  # type: ignore[arg-type]

    def phase(self) -> Phase | None:
        seen = self.head.seen(KEY)
        return seen.phase if seen else None

    async def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for node_dir in self.own.glob(f"{PREFIX}*"):
            words = [sys.executable, "-m", "corral.agent", "--kill", str(node_dir)]
            await asyncio.to_thread(subprocess.run, words, check=True)
        if self.head.server is not None:
            await self.head.die()


@asynccontextmanager
async def part(place: Path, run: str, *, early: bool = True) -> AsyncIterator[Part]:
    launch = launch_of(
        KEY, run, seat=Seat(node=NodeId("gpu01"), gpus=(0,)), grace_seconds=60.0
    )
    made = Part(place, folder_in(place, launch, early=early))
    try:
        yield made
    finally:
        await made.end()


def test_ranks_begin_without_a_head_and_the_agent_finds_them_and_goes_when_they_are_settled(
    tmp_path: Path,
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    run = f"echo $CORRAL_JOB_ID.$RANK >> {ran}; until [ -e {go} ]; do sleep 0.05; done; exit 3"

    async def tale() -> None:
        async with part(tmp_path, run) as it:
            await it.until(lambda: ran.exists() and ran.read_text())
            await it.head.start()
            await it.until(lambda: it.phase() == Phase.UP)
            await it.head.want(1, run=(launch_of(KEY, run),))
            go.touch()
            await it.until(lambda: it.phase() == Phase.ENDED)
            seen = it.head.seen(KEY)
            assert seen is not None
            assert [end.code for _, end in seen.exits] == [3]
            (node_dir,) = it.own.glob(f"{PREFIX}*")
            launcher = LocalProcess.recorded(node_dir / PID_FILE)
            assert launcher is not None
            await it.head.want(2, settled=(KEY,))
            await it.until(lambda: it.process.poll() is not None)
            await it.until(lambda: not launcher.lives)
            assert (it.process.returncode, ran.read_text()) == (0, "j7.0\n")
            assert list(it.own.glob(f"{PREFIX}*")) == []

    asyncio.run(tale())


def test_a_stop_reaches_ranks_that_began_before_their_agent(tmp_path: Path) -> None:
    ran, told = tmp_path / "ran", tmp_path / "told"
    run = f"trap 'touch {told}; exit 0' TERM; touch {ran}; while :; do sleep 0.05; done"

    async def tale() -> None:
        async with part(tmp_path, run) as it:
            await it.until(ran.exists)
            await it.head.start()
            await it.head.want(1, stop=(stop_of(KEY),))
            await it.until(lambda: it.phase() == Phase.ENDED)
            assert told.exists()

    asyncio.run(tale())


def test_what_the_batch_system_asks_before_the_agent_is_there_is_obeyed_with_grace(
    tmp_path: Path,
) -> None:
    ran, told = tmp_path / "ran", tmp_path / "told"
    run = f"trap 'touch {told}; exit 1' TERM; touch {ran}; while :; do sleep 0.05; done"

    async def tale() -> None:
        async with part(tmp_path, run) as it:
            await it.until(ran.exists)
            it.process.send_signal(signal.SIGTERM)
            await it.until(told.exists)
            await it.head.start()
            await it.until(lambda: it.phase() == Phase.ENDED)
            seen = it.head.seen(KEY)
            assert seen is not None
            assert seen.trouble_is_infra

    asyncio.run(tale())


def test_without_a_spec_the_ranks_wait_for_the_heads_word(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    async def tale() -> None:
        async with part(tmp_path, f"touch {ran}", early=False) as it:
            await it.head.start()
            await it.until(lambda: it.head.beats)
            assert not ran.exists()
            await it.head.want(1, run=(launch_of(KEY, f"touch {ran}"),))
            await it.until(ran.exists)

    asyncio.run(tale())


def test_a_workdir_beside_the_spec_is_where_the_ranks_begin_and_a_damaged_one_is_left_to_the_agent(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "train.py").write_text("print(1)")
    launch = launch_of(KEY, workdir="0" * 64)
    source = folder_in(tmp_path, launch)
    archive = source / WORKDIR_FILE
    with tarfile.open(archive, "w:gz") as made:
        made.add(there / "train.py", "train.py")
    early = early_in(source, {})
    assert early is not None
    for name, content in (("whole", archive.read_bytes()), ("damaged", b"no archive")):
        archive.write_bytes(content)
        (tmp_path / name / "attempts").mkdir(parents=True)
        laid = laid_out(early, source, tmp_path / name)
        if name == "whole":
            assert laid is not None
            assert [file.name for file in Path(laid.spec.work).iterdir()] == [
                "train.py"
            ]
        else:
            assert laid is None
            assert list((tmp_path / name / "attempts").iterdir()) == []


@pytest.mark.parametrize(
    ("granted", "seen"), [("4,6", "6"), ("GPU-8f1c", None), (None, None)]
)
def test_gpus_are_counted_among_those_of_the_step_and_where_it_names_none_the_head_is_asked(
    tmp_path: Path, granted: str | None, seen: str | None
) -> None:
    launch = launch_of(KEY, seat=Seat(node=NodeId("gpu01"), gpus=(1,)))
    source = folder_in(tmp_path, launch, pretend_gpus=None)
    early = early_in(source, {} if granted is None else {GRANTED: granted})
    assert (None if early is None else early.spec.env[GRANTED]) == seen


def test_of_the_steps_environment_only_what_is_passed_on_is_seen_and_the_jobs_own_wins(
    tmp_path: Path,
) -> None:
    source = folder_in(tmp_path, launch_of(KEY, env=(("LANG", "C"),)))
    early = early_in(
        source, {"LANG": "de_DE", "HOME": "/home/ann", "SLURM_JOB_ID": "91"}
    )
    assert early is not None
    env = early.spec.env
    assert (env["LANG"], env["HOME"], env["SLURM_JOB_ID"]) == ("C", "/home/ann", "7")
    assert str(source) in early.hidden
