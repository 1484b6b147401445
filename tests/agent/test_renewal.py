"""The agent renews its token: when it is old, when it is refused, and at no moment
without one."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from corral.agent.fetch_inputs import HeadAway, HeadRefuses
from corral.agent.settings import load_token
from corral.agent.token_renewal import AGAIN_SECONDS, LOOK_SECONDS, Renewal
from corral.domain.users import RENEW_SECONDS

HOUR = 3600.0


class Told:
    """A head that remembers which tokens it was asked for; `no` is raised after it
    recorded one."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.no: Exception | None = None

    def post(self, path: str, body: bytes) -> bytes:
        assert path == "/v1/agents/token"
        self.asked.append(json.loads(body)["sha256"])
        if self.no is not None:
            raise self.no
        return b"{}"


@pytest.fixture
def told() -> Told:
    return Told()


def renewal(folder: Path, told: Told, *, age_hours: float = 0.0) -> Renewal:
    token = folder / "token"
    token.write_text("the-first-token-of-the-node\n")
    token.chmod(0o600)
    made = os.stat(token).st_mtime - age_hours * HOUR
    os.utime(token, (made, made))
    used: list[str] = []
    return Renewal(
        node_dir=folder,
        token=load_token(folder),
        post=told.post,
        use=used.append,
        refused=asyncio.Event(),
    )


async def test_an_old_token_is_replaced_and_a_young_one_is_kept(
    tmp_path: Path, told: Told
) -> None:
    young = renewal(tmp_path, told, age_hours=11)
    assert await young.look(RENEW_SECONDS) == LOOK_SECONDS
    assert told.asked == []
    old = renewal(tmp_path, told, age_hours=13)
    assert await old.look(RENEW_SECONDS) == LOOK_SECONDS
    fresh = load_token(tmp_path)
    assert told.asked == [hashlib.sha256(fresh.encode()).hexdigest()]
    assert fresh == old.token != "the-first-token-of-the-node"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    assert await old.look(RENEW_SECONDS) == LOOK_SECONDS
    assert len(told.asked) == 1


async def test_a_token_that_is_refused_is_renewed_at_once(
    tmp_path: Path, told: Told
) -> None:
    one = renewal(tmp_path, told)
    one.refused.set()
    await one.look(RENEW_SECONDS)
    assert len(told.asked) == 1
    assert not one.refused.is_set()


async def test_what_was_written_into_the_folder_is_used_and_not_renewed(
    tmp_path: Path, told: Told
) -> None:
    one = renewal(tmp_path, told)
    (tmp_path / "token").write_text("one-that-the-engine-has-written\n")
    one.refused.set()
    await one.look(RENEW_SECONDS)
    assert one.token == "one-that-the-engine-has-written"
    assert told.asked == []


@pytest.mark.parametrize(
    "no",
    [
        HeadAway("the answer was lost"),
        HeadRefuses("no", its_code="token_revoked"),
        OSError("full"),
    ],
    ids=lambda no: type(no).__name__,
)
async def test_until_the_fresh_one_is_kept_the_earlier_one_goes_on(
    tmp_path: Path, told: Told, no: Exception
) -> None:
    one = renewal(tmp_path, told, age_hours=13)
    told.no = no
    assert await one.look(RENEW_SECONDS) == AGAIN_SECONDS
    assert one.token == load_token(tmp_path) == "the-first-token-of-the-node"
    told.no = None
    await one.look(RENEW_SECONDS)
    assert one.token == load_token(tmp_path) != "the-first-token-of-the-node"
    assert len(told.asked) == 2


async def test_an_engine_that_hands_out_tokens_is_asked_once_a_day(
    tmp_path: Path, told: Told
) -> None:
    one = renewal(tmp_path, told, age_hours=13)
    told.no = HeadRefuses("by its engine", its_code="unsupported")
    assert await one.look(RENEW_SECONDS) == 24 * HOUR
