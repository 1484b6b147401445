"""A terminal that is refused is refused as everything else is."""

import json
import threading
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from corral.api import auth_middleware
from corral.api.errors import answer
from corral.domain.errors import Unauthorised
from tests.api.heads import Head
from tests.patience import PATIENCE_SECONDS


def test_a_terminal_of_an_unknown_job_is_refused_and_no_bug_is_met(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[Exception] = []
    over = threading.Event()
    write_down = auth_middleware.Gate._write_down

    async def last(*words: Any) -> None:
        await write_down(*words)
        over.set()

    def bug(error: Exception, id: str) -> Any:
        met.append(error)
        return answer(Unauthorised("a bug was met"))

    monkeypatch.setattr(auth_middleware.Gate, "_write_down", last)
    monkeypatch.setattr(auth_middleware, "bug", bug)
    with (
        pytest.raises(InvalidStatus) as refused,
        head.dial("admin", "/v1/jobs/nope/attach"),
    ):
        pass
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["error"]["code"] == "not_found"
    assert over.wait(PATIENCE_SECONDS)
    assert met == []
