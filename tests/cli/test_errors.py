"""What goes wrong is told on stderr, and each kind has its exit code."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.cli import error_output
from corral.cli.main import run
from corral.cli.printing import age_text, clean
from corral.domain.errors import (
    Bug,
    CannotFit,
    CorralError,
    IllegalMove,
    NotFound,
    SpecInvalid,
    StoreTrouble,
    TokenExpired,
    TokenRevoked,
    Unreachable,
)
from corral.domain.ids import TokenId, UserName
from corral.domain.users import Role, Token, role_of
from tests.api.heads import TOKENS, Head
from tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecInvalid("m"), 3),
        (NotFound("job", "x"), 3),
        (CannotFit("m"), 3),
        (Unreachable("m"), 4),
        (StoreTrouble("m"), 4),
        (Bug("m"), 70),
        (IllegalMove("m"), 70),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: CorralError, code: int) -> None:
    assert error_output.exit_code_of(error) == code


def test_an_error_is_told_on_stderr_with_the_next_thing_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error_output.tell(
        "not_found", "there is no job 'x'", "run: corral ps", as_json=False
    )
    out, err = capsys.readouterr()
    assert (out, err) == ("", "corral: there is no job 'x'\n  run: corral ps\n")


def test_as_json_it_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    error_output.tell("conflict", "no\x1b[31m", "hint", as_json=True)
    error = {"code": "conflict", "message": "no\x1b[31m", "hint": "hint"}
    assert json.loads(capsys.readouterr().err) == {"error": error}


def test_text_of_others_cannot_move_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x07c\u202ed\ne\tf") == "a\ufffd[2Jb\ufffdc\ufffdd\ne\tf"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-3, "0s"), (59.9, "59s"), (60, "1m"), (3600, "1h00m"), (12_000, "3h20m"),
     (172_800, "2d0h"), (1e6, "11d13h")],
)  # fmt: skip
def test_ages_are_short(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize("command", ["up", "down"])
def test_up_and_down_are_about_a_directory_never_about_the_head_of_an_address(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORRAL_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CORRAL_DIR", "/nowhere/at/all")
    assert run([command]) == error_output.REFUSED
    assert f"run: corral {command} --dir /nowhere/at/all" in capsys.readouterr().err


def test_whoever_holds_the_directory_is_told_the_way_back_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CORRAL_URL", raising=False)
    monkeypatch.delenv("CORRAL_TOKEN", raising=False)
    assert "delete the file `token`" in error_output.hint_of(
        TokenRevoked("m", hint="h")
    )
    monkeypatch.setenv("CORRAL_TOKEN", "given")
    assert error_output.hint_of(TokenRevoked("m", hint="h")) == "h"


def test_whose_join_token_has_expired_is_told_to_get_a_new_line_and_to_end_no_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CORRAL_URL", raising=False)
    monkeypatch.delenv("CORRAL_TOKEN", raising=False)
    token = Token(
        id=TokenId("t1"),
        user=UserName("ann"),
        role=Role.JOIN,
        sha256="0" * 64,
        created_at=0.0,
        expires_at=900.0,
        uses_left=1,
    )
    with pytest.raises(TokenExpired) as refused:
        role_of(token, None, now=901.0)
    hint = error_output.hint_of(refused.value)
    assert "valid for 15 minutes and one machine" in hint
    assert "ask an operator to run: corral node token" in hint


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["join"], error_output.USAGE, "URL and --token are missing"),
        (["join", "--token", "corral_join_a"], error_output.USAGE, "URL is missing"),
        (["leave", "-y"], error_output.REFUSED, "has not joined a cluster"),
    ],
)
def test_where_nothing_has_joined_it_is_said_what_is_missing(
    words: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("CORRAL_URL", "CORRAL_JOIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path))
    assert run(words) == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_without_a_traceback(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(**given: object) -> None:
        raise OSError(number, "No space left on device", "/data/x")

    monkeypatch.setattr("corral.cli.main.build", no_room)
    assert run(["ps"]) == error_output.UNREACHABLE
    assert "corral: the disk of /data/x is full\n  make room" in capsys.readouterr().err


def test_another_fault_of_a_file_is_not_taken_for_a_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(**given: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("corral.cli.main.build", broken)
    with pytest.raises(OSError, match="Input/output"):
        run(["ps"])


@pytest.mark.parametrize("form", [["--json"], []])
def test_a_reader_that_has_gone_ends_a_command_quietly(
    tmp_path: Path, form: list[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ["run", "--dry-run", *form, "--no-workdir", "--array", "0-2"]
    words += ["--dir", str(tmp_path), "--", "true"]
    with os.fdopen(writer, "wb") as gone:
        ended = subprocess.run(
            [sys.executable, "-c", "from corral.cli.main import main; main()", *words],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert (ended.returncode, "Traceback" in ended.stderr) == (error_output.DONE, False)


def test_a_viewer_who_submits_with_a_workdir_is_refused_in_words(
    head: Head,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.py").write_text("1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_TOKEN", TOKENS["vera"])
    assert run(["run", "-d", "--", "true"]) == 3
    told = capsys.readouterr().err
    assert (
        "the role user is required to upload workdirs; this token of vera has" in told
    )


def test_who_has_not_logged_in_cannot_log_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CORRAL_URL", raising=False)
    assert run(["logout", "--dir", str(tmp_path)]) == error_output.REFUSED
    assert "you are not logged in" in capsys.readouterr().err


def test_a_line_to_join_a_head_on_loopback_comes_with_a_warning(
    head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "token"]) == error_output.DONE
    said = capsys.readouterr()
    assert said.out.startswith("corral join http://127.0.0.1:")
    assert "only this machine can reach" in said.err
    assert "--host ADDRESS" in said.err
