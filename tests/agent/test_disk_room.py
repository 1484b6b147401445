"""A node whose disk is full takes no new work, until there is room for some attempts
again."""

import asyncio
from pathlib import Path

import pytest

from corral.agent.disk_room import (
    ENOUGH,
    FULL,
    LEAST_BYTES,
    LEAST_FILES,
    DiskRoom,
    closed_by,
    room_at,
)
from tests.agent.bench import bench

MUCH = DiskRoom(bytes=2**40, files=2**20)


@pytest.mark.parametrize(
    ("free_bytes", "files", "is_closed", "why"),
    [
        (LEAST_BYTES, LEAST_FILES, False, ""),
        (LEAST_BYTES - 1, LEAST_FILES, False, FULL),
        (LEAST_BYTES, LEAST_FILES - 1, False, FULL),
        (LEAST_BYTES, None, False, ""),
        (LEAST_BYTES, None, True, FULL),
        (ENOUGH * LEAST_BYTES, LEAST_FILES, True, FULL),
        (ENOUGH * LEAST_BYTES, ENOUGH * LEAST_FILES, True, ""),
    ],
)
def test_it_closes_with_little_room_and_opens_with_more(
    free_bytes: int, files: int | None, is_closed: bool, why: str
) -> None:
    assert (
        closed_by(DiskRoom(bytes=free_bytes, files=files), is_closed=is_closed) == why
    )


def test_the_room_of_a_disk_is_read(tmp_path: Path) -> None:
    assert room_at(tmp_path).bytes > 0


def test_the_head_learns_at_once_that_the_disk_is_full_and_that_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = [MUCH]
    monkeypatch.setattr("corral.agent.agent.room_at", lambda path: rooms[-1])
    monkeypatch.setattr("corral.agent.agent.DISK_SECONDS", 0.01)

    async def story() -> None:
        async with bench(tmp_path) as here:
            assert here.agent.inventory().closed == ""
            for room, why in ((DiskRoom(bytes=0, files=9), FULL), (MUCH, "")):
                rooms.append(room)
                await here.until(
                    lambda why=why: any(
                        beat.inventory is not None and beat.inventory.closed == why
                        for beat in here.head.beats[-3:]
                    )
                )
                await here.agent.look_now()
                assert here.agent.inventory().closed == why, (
                    "a new look changes nothing of it"
                )

    asyncio.run(story())
