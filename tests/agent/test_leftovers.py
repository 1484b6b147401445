"""Work folders that stay because saves lie in them go when the head has forgotten their
jobs."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from corral.agent import journal
from corral.agent.fetch_inputs import FORGOTTEN, HeadAway, Prepare
from corral.agent.head_addresses import HeadAddresses
from corral.agent.image.image_cache import Images
from corral.agent.leftover_folders import MOST_ASKED, sweep
from corral.agent.user_accounts import Accounts
from corral.domain.ids import JobId, NodeId
from corral.wire.node import NodeSettings
from tests.agent.fakehead import TOKEN, FakeHead


def left(attempts: Path) -> list[str]:
    return sorted(folder.name for folder in attempts.iterdir())


def settled(attempts: Path, *names: str) -> None:
    for name in names:
        (attempts / name / "work" / "ckpt").mkdir(parents=True)
        (attempts / name / "work" / "ckpt" / "1").write_text("a save")


async def test_only_what_is_settled_and_forgotten_goes(tmp_path: Path) -> None:
    asked: list[JobId] = []

    async def ask(jobs: Sequence[JobId]) -> Sequence[JobId]:
        asked.extend(jobs)
        return [JobId(job) for job in ("j1", "j2_1_0", "j5", "j9") if job in jobs]

    await sweep(tmp_path / "none yet", ask)
    settled(tmp_path, "j1.1", "j1.2", "j2_1_0.3", "j3.1", "j5.1", "other", ".j7.1.gone")
    (tmp_path / "j5.1" / journal.FILE).touch()
    await sweep(tmp_path, ask)
    assert sorted(asked) == ["j1", "j2_1_0", "j3"]
    assert left(tmp_path) == ["j3.1", "j5.1", "other"]


async def test_a_head_that_does_not_answer_costs_nothing(tmp_path: Path) -> None:
    async def ask(jobs: Sequence[JobId]) -> Sequence[JobId]:
        raise HeadAway("it is away")

    settled(tmp_path, "j1.1")
    with pytest.raises(HeadAway):
        await sweep(tmp_path, ask)
    assert left(tmp_path) == ["j1.1"]


async def test_many_are_asked_for_in_parts(tmp_path: Path) -> None:
    parts: list[int] = []

    async def ask(jobs: Sequence[JobId]) -> Sequence[JobId]:
        parts.append(len(jobs))
        return ()

    for number in range(MOST_ASKED + 3):
        (tmp_path / f"j{number}.1").mkdir()
    await sweep(tmp_path, ask)
    assert parts == [MOST_ASKED, 3]


async def test_the_head_is_asked_with_the_nodes_token(tmp_path: Path) -> None:
    head = FakeHead(tmp_path / "head.json")
    await head.start()
    head.answers[f"{FORGOTTEN}j1,j2"] = (
        200,
        json.dumps({"forgotten": ["j2"]}).encode(),
    )
    prepare = Prepare(
        node_dir=tmp_path,
        heads=HeadAddresses(head.file),
        token=TOKEN,
        images=Images(tmp_path),
        accounts=Accounts(
            node_dir=tmp_path, settings=NodeSettings(node=NodeId("n1"), head_file="")
        ),
    )
    try:
        assert (await prepare.forgotten([JobId("j1"), JobId("j2")])).forgotten == ["j2"]
    finally:
        prepare.close()
        await head.die()
