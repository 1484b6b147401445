"""Tokens of log-ins: one file a head, for its owner alone, and in no workdir."""

from pathlib import Path

import pytest

from corral.client.credentials import is_credential
from corral.client.head_target import Where
from corral.client.log_ins import (
    LogIn,
    all_log_ins,
    drop_log_in,
    keep_log_in,
    log_in_at,
)
from corral.domain.errors import Conflict, Unauthorised

HERE, ELSEWHERE = "https://a.example:8470", "https://b.example:8470"


def log_in(url: str) -> LogIn:
    return LogIn(
        url=url, token="corral_" + "x" * 40, id="t1", user="ann", expires_at=9e9
    )


def test_a_log_in_is_used_at_its_head_and_at_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path))
    monkeypatch.delenv("CORRAL_TOKEN", raising=False)
    keep_log_in(tmp_path, log_in(HERE))
    where = Where(url=HERE)
    assert where.target().token == log_in(HERE).token
    expired = b'{"error": {"code": "token_expired", "message": "over", "hint": "ask an admin"}}'
    assert (
        where.refusal(401, expired).hint == f"log in again: corral login --oidc {HERE}"
    )
    with pytest.raises(Unauthorised, match="no token for https://b"):
        Where(url=ELSEWHERE).target()
    monkeypatch.setenv("CORRAL_TOKEN", "y" * 40)
    assert where.target().token == "y" * 40, "what is given counts first"
    drop_log_in(tmp_path, HERE)
    assert all_log_ins(tmp_path) == []


def test_a_log_in_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = keep_log_in(tmp_path, log_in(HERE))
    assert log_in_at(tmp_path, HERE) == log_in(HERE)
    file.chmod(0o640)
    with pytest.raises(Conflict, match="other users can read"):
        log_in_at(tmp_path, HERE)
    file.chmod(0o600)
    file.write_text("{}")
    assert log_in_at(tmp_path, HERE) is None


def test_a_log_in_travels_with_no_workdir(tmp_path: Path) -> None:
    file = keep_log_in(tmp_path, log_in(HERE))
    assert is_credential(f"log-ins/{file.name}", file, file.stat().st_mode)
