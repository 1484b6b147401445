"""The token that came with a pod is replaced before a rank begins, by one in the
agent's memory."""

import hashlib
import json
import subprocess
import sys
from random import Random

import pytest

from corral.agent.fetch_inputs import HeadAway, HeadRefuses
from corral.agent.pilot.token import exchange


class Head:
    """Answers with each of `answers` in turn: an exception, or None for yes."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.digests: list[str] = []
        self.used: list[str] = []

    def post(self, path: str, body: bytes) -> bytes:
        assert path == "/v1/agents/token"
        self.digests.append(json.loads(body)["sha256"])
        if (no := self.answers.pop(0)) is not None:
            raise no
        return b"{}"

    async def exchange(self) -> None:
        await exchange(self.post, self.used.append, Random(1))


def refusal(code: str) -> HeadRefuses:
    return HeadRefuses("no", its_code=code)


async def test_a_fresh_token_is_used_once_the_head_has_its_hash() -> None:
    head = Head(None)
    await head.exchange()
    (fresh,) = head.used
    assert head.digests == [hashlib.sha256(fresh.encode()).hexdigest()]


@pytest.mark.parametrize("code", ["token_revoked", "unauthorised"])
async def test_a_token_that_counts_no_more_after_a_lost_answer_was_exchanged(
    code: str,
) -> None:
    head = Head(HeadAway("the answer was lost"), refusal(code))
    await head.exchange()
    first, second = head.digests
    assert first == second == hashlib.sha256(head.used[0].encode()).hexdigest()


async def test_a_head_that_is_away_is_waited_for() -> None:
    head = Head(HeadAway("away"), OSError("no route"), ValueError("no head.json"), None)
    await head.exchange()
    assert (len(head.digests), len(set(head.digests)), len(head.used)) == (4, 1, 1)


async def test_a_head_of_an_older_version_takes_the_token_that_came_with_the_pod() -> (
    None
):
    head = Head(refusal("unsupported"))
    await head.exchange()
    assert head.used == []


PR_GET_DUMPABLE = 3
CLOSES = f"""
import ctypes
from corral.agent.pilot.token import close_memory
close_memory()
print(ctypes.CDLL(None).prctl({PR_GET_DUMPABLE}, 0, 0, 0, 0))
"""


def test_a_closed_process_may_not_be_read_by_others_of_its_account() -> None:
    said = subprocess.run(
        [sys.executable, "-c", CLOSES], capture_output=True, check=True
    )
    assert said.stdout == b"0\n"
