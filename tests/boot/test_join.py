"""What is said to a machine whose join token the head does not take."""

from pathlib import Path
from typing import Any

import pytest

from corral.boot import join
from corral.boot.settings import ClusterDir
from corral.domain.errors import TokenUsed, Unauthorised
from corral.domain.users import ANOTHER_JOIN

WANTED = join.JoinRequest(url="https://10.0.0.1:7000", token="corral_join_bad")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            Unauthorised("the Authorization header is not: Bearer TOKEN", hint="send"),
            "does not know this join token",
        ),
        (
            Unauthorised("this cluster does not know the token", hint="set"),
            "does not know this join token",
        ),
        (
            Unauthorised("there is no user ann any more", hint=ANOTHER_JOIN),
            "no user ann",
        ),
        (
            TokenUsed("the join token t1 has been used", hint=ANOTHER_JOIN),
            "has been used",
        ),
    ],
)
def test_a_join_token_that_is_not_taken_is_told_with_how_to_get_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Unauthorised, says: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise answer

    monkeypatch.setattr(join, "ask", refuse)
    with pytest.raises(type(answer), match=says) as refused:
        join.join(ClusterDir(tmp_path), WANTED, lambda: 0)
    assert "corral node token" in refused.value.hint
    assert not list(tmp_path.iterdir())
