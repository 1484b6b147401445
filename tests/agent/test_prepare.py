"""Shares of the threads that prepare starts: nobody's large workdir holds up another's
start."""

import asyncio
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from corral.agent import fetch_inputs as module
from corral.agent.fetch_inputs import THREADS, USER_STARTS, NotStarted, Prepare
from corral.agent.head_addresses import HeadAddresses
from corral.agent.image.image_cache import Images
from corral.agent.unpack_workdir import SMALL, SnapshotTooLarge, helper_words
from corral.agent.user_accounts import Accounts
from corral.domain.desired_state import Launch
from corral.domain.ids import NodeId
from corral.wire.node import NodeSettings
from tests.agent.nodes import launch_of


def prepared(node_dir: Path) -> Prepare:
    return Prepare(
        node_dir=node_dir,
        heads=HeadAddresses(node_dir / "head.json"),
        token="t",
        images=Images(node_dir),
        accounts=Accounts(
            node_dir=node_dir, settings=NodeSettings(node=NodeId("n1"), head_file="")
        ),
    )


def cached(node_dir: Path, members: int) -> str:
    """A workdir of so many files, already fetched; its digest."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as target:
        for number in range(members):
            target.addfile(tarfile.TarInfo(f"f{number}"))
    digest = hashlib.sha256(whole.getvalue()).hexdigest()
    (node_dir / "cache").mkdir(exist_ok=True)
    (node_dir / "cache" / f"{digest}.tar.gz").write_bytes(whole.getvalue())
    return digest


def launch(job: str, owner: str, digest: str) -> Launch:
    return launch_of("true", job, owner=owner, workdir=digest)


async def test_one_users_large_workdirs_hold_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = cached(tmp_path, SMALL.members + 1), cached(tmp_path, 1)
    waiting, end = [], asyncio.Event()

    async def slow(archive: Path, into: Path) -> None:
        waiting.append(into)
        await end.wait()

    monkeypatch.setattr(module, "_unpack_in_helper", slow)
    prepare = prepared(tmp_path)
    try:
        async with asyncio.TaskGroup() as starts:
            for number in range(THREADS * 2):
                starts.create_task(prepare.work(launch(f"j{number}", "alice", large)))
            async with asyncio.timeout(30):
                work = await prepare.work(launch("j99", "bob", small))
            assert (work / "f0").exists()
            assert len(waiting) <= USER_STARTS
            end.set()
    finally:
        prepare.close()
    assert len(waiting) == THREADS * 2


async def test_a_large_workdir_comes_out_of_the_helper_as_it_went_in(
    tmp_path: Path,
) -> None:
    digest = cached(tmp_path, SMALL.members + 1)
    prepare = prepared(tmp_path)
    try:
        work = await prepare.work(launch("j1", "alice", digest))
    finally:
        prepare.close()
    assert len(list(work.iterdir())) == SMALL.members + 1


async def test_what_the_helper_refuses_is_the_users_own_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = cached(tmp_path, 1)
    archive = tmp_path / "cache" / f"{digest}.tar.gz"
    words = helper_words(archive, Path("/dev/null/no-folder"))
    monkeypatch.setattr(module, "unpack", too_large)
    prepare = prepared(tmp_path)
    try:
        archive.write_bytes(b"no archive")
        with pytest.raises(
            NotStarted, match="the workdir cannot be unpacked"
        ) as caught:
            await prepare.work(launch("j1", "alice", digest))
        assert caught.value.infra is False
        assert not archive.exists()
        digest = cached(tmp_path, 1)
        monkeypatch.setattr(module, "helper_words", lambda *_: words)
        with pytest.raises(NotStarted, match="Not a directory") as caught:
            await prepare.work(launch("j2", "alice", digest))
        assert caught.value.infra is True
    finally:
        prepare.close()


def too_large(archive: Path, into: Path, bounds: object) -> None:
    raise SnapshotTooLarge("more than is done at once")
