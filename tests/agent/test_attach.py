"""A shell beside the ranks, or their own input and output."""

import asyncio
import os
from pathlib import Path

import pytest

from corral.agent import containment
from corral.agent.supervisor.attach import Output
from corral.agent.supervisor.supervisor import AttachRefused
from corral.domain.observed_state import Phase
from tests.agent.nodes import launch_of, left_of, node, stop_of
from tests.patience import PATIENCE_SECONDS

KINDS = [kind for kind in containment.KINDS if containment.probe(kind).kind == kind]


async def read_until(reader: asyncio.StreamReader, words: bytes) -> bytes:
    said = b""
    while words not in said:
        data = await asyncio.wait_for(reader.read(4096), PATIENCE_SECONDS)
        assert data, f"ended after {said!r}"
        said += data
    return said


async def read_to_end(reader: asyncio.StreamReader) -> None:
    while await asyncio.wait_for(reader.read(4096), PATIENCE_SECONDS):
        continue


@pytest.mark.parametrize("kind", KINDS)
async def test_a_shell_is_in_the_ranks_place_and_ends_with_them(
    node_dir: Path, kind: str
) -> None:
    async with node(node_dir, kind) as here:
        launch = launch_of("echo up; sleep 3600", env=(("COLOUR", "blue"),))
        key = await here.launch(launch, {"HF_TOKEN": "canary"})
        await here.says(key, "up")
        reader, writer = await here.supervisor.attach(key, 0, True, rows=33, columns=99)
        writer.write(b"stty size; echo $COLOUR-$HF_TOKEN-$RANK; pwd; echo do''ne\n")
        said = await read_until(reader, b"done")
        assert b"33 99" in said
        assert b"blue-canary-0" in said
        assert str(here.work(key)).encode() in said
        here.supervisor.stop(stop_of(key, 0.2))
        await here.ended(key)
        await read_to_end(reader)
        writer.close()
        assert left_of(node_dir) == []


async def test_a_shell_that_is_left_ends_and_the_ranks_go_on(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 3600"))
        await here.says(key, "up")
        reader, writer = await here.supervisor.attach(key, 0, True)
        writer.write(b"exit\n")
        await read_to_end(reader)
        writer.close()
        assert here.seen(key).phase == Phase.UP


async def test_a_rank_hears_and_says_through_attach(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of('echo before; while read -r a; do echo "got $a"; done')
        )
        await here.says(key, "before")
        reader, writer = await here.supervisor.attach(key, 0, False)
        writer.write(b"one\ntwo\n")
        assert await read_until(reader, b"two\n") == b"got one\ngot two\n"
        writer.close()
        assert here.log(key) == "before\ngot one\ngot two\n"
        again, writer = await here.supervisor.attach(key, 0, False)
        writer.write(b"three\n")
        await read_until(again, b"got three\n")
        here.supervisor.stop(stop_of(key, 1.0))
        assert await asyncio.wait_for(again.read(), PATIENCE_SECONDS) == b""
        writer.close()


async def test_what_does_not_run_refuses(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 3600"))
        await here.says(key, "up")
        with pytest.raises(AttachRefused, match="rank 7"):
            await here.supervisor.attach(key, 7, False)
        here.supervisor.stop(stop_of(key, 0.0))
        await here.ended(key)
        for shell in (True, False):
            with pytest.raises(AttachRefused, match="does not run|has ended"):
                await here.supervisor.attach(key, 0, shell)


@pytest.mark.parametrize(
    ("end", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)]
)
async def test_who_listens_to_a_rank_hears_how_it_has_ended(
    node_dir: Path, end: str, code: int
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of(f"echo up; read -r a; echo last; {end}"))
        await here.says(key, "up")
        reader, writer = await here.supervisor.attach(key, 0, False)
        writer.write(b"go\n")
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b"last\n"
        assert isinstance(reader, Output)
        assert reader.exit_code == code
        writer.close()


async def test_a_shell_ends_when_the_person_has_gone_or_types_no_more(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; exec sleep 3600"))
        await here.says(key, "up")
        alone = left_of(node_dir)
        for leaves in (True, False):
            reader, writer = await here.supervisor.attach(key, 0, True)
            writer.write(b"echo he''re\n")
            await read_until(reader, b"here")
            assert len(left_of(node_dir)) > len(alone)
            assert isinstance(reader, Output)
            if leaves:
                reader.leave()
                writer.close()
            else:
                writer.end()
                await read_to_end(reader)
            await here.until(lambda: left_of(node_dir) == alone, "the end of the shell")
            writer.close()
        assert here.seen(key).phase == Phase.UP


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another")
async def test_an_account_that_nobody_may_log_in_to_has_a_shell_all_the_same(
    node_dir: Path,
) -> None:
    node_dir.chmod(0o755)
    (node_dir / "attempts").chmod(0o755)
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 3600", owner="nobody"))
        await here.says(key, "up")
        reader, writer = await here.supervisor.attach(key, 0, True)
        writer.write(b"echo i''am $(id -un)\n")
        await read_until(reader, b"iam nobody")
        assert isinstance(reader, Output)
        reader.leave()
        writer.close()


async def test_a_stop_hangs_up_on_a_shell_and_does_not_wait_for_it(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 3600"))
        await here.says(key, "up")
        reader, writer = await here.supervisor.attach(key, 0, True)
        writer.write(b"echo he''re\n")
        await read_until(reader, b"here")
        here.supervisor.stop(stop_of(key, 3600.0))
        await here.ended(key)
        await read_to_end(reader)
        writer.close()


async def test_the_end_of_the_input_is_read_by_the_rank(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; cat; echo read; sleep 3600"))
        await here.says(key, "up")
        reader, writer = await here.supervisor.attach(key, 0, False)
        writer.write(b"last\n")
        writer.end()
        assert await read_until(reader, b"read\n") == b"last\nread\n"
        with pytest.raises(AttachRefused, match="its input was closed"):
            await here.supervisor.attach(key, 0, False)
        assert isinstance(reader, Output)
        reader.leave()
