"""What is typed becomes the spec that a file would have held."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cli.error_output import REFUSED, Usage
from corral.cli.main import build, with_negatives
from corral.cli.main import run as main_run
from corral.cli.spec_options import Typed, command_text, made_name, spec_of
from corral.cli.time_options import (
    RequestOptions,
    constraints_of,
    forms_of,
    nodes_of,
    number,
)
from corral.domain.errors import SpecInvalid
from corral.domain.ids import is_name


def spec(*command: str, **typed: Any) -> dict[str, Any]:
    return spec_of(Typed(command=command or ("true",), no_workdir=True, **typed))


def test_what_is_not_given_is_not_in_the_spec() -> None:
    assert spec("true", name="a") == {"name": "a", "run": "true"}


def test_every_option_has_its_field() -> None:
    given_all = spec(
        "python",
        "train.py",
        name="a",
        nodes="2",
        gpus="h100:8",
        cpus="4",
        memory="64GB",
        queue="research",
        priority="high",
        time="4h",
        env=("A=b", "EMPTY=", "SIGNS=a=b"),
        secret=("TOKEN",),
        per="gpu",
        checkpoint="/s",
        after=("one", "two:failed"),
        array="0-9%2",
        retry=3,
    )
    assert given_all == {
        "name": "a",
        "run": "python train.py",
        "nodes": 2,
        "resources": {"gpu": "h100:8", "cpu": 4, "memory": "64GB"},
        "queue": "research",
        "priority": "high",
        "max_duration": "4h",
        "env": {"A": "b", "EMPTY": "", "SIGNS": "a=b"},
        "secrets": ["TOKEN"],
        "per": "gpu",
        "checkpoint": {"path": "/s"},
        "after": [{"job": "one"}, {"job": "two", "on": "failed"}],
        "array": "0-9%2",
        "retry": {"user": 3},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("0.5", 0.5), ("-1", -1), ("1e9", 1e9), ("h100", "h100")],
)
def test_gpus_are_numbers_where_they_look_like_one(text: str, value: object) -> None:
    assert spec(gpus=text)["resources"]["gpu"] == value


def test_a_variable_may_be_taken_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "value")
    assert spec(env=("FROM_HERE",))["env"] == {"FROM_HERE": "value"}
    with pytest.raises(SpecInvalid):
        spec(env=("NOT_SET_ANYWHERE",))


def test_one_word_is_a_line_for_the_shell_and_several_are_as_typed() -> None:
    assert command_text(("echo $RANK | wc -c",)) == "echo $RANK | wc -c"
    assert command_text(("echo", "$RANK", "a b")) == "echo '$RANK' 'a b'"
    with pytest.raises(Usage):
        command_text(())


@given(st.lists(st.text(max_size=200), min_size=1, max_size=4))
def test_a_made_name_is_always_a_name_and_new(command: list[str]) -> None:
    assert is_name(made_name(command))


@pytest.mark.parametrize(
    ("command", "base"),
    [
        (("python", "src/train.py", "--lr", "3"), "train"),
        (("torchrun", "--nproc", "2", "main.py"), "main"),
        (("/usr/bin/env",), "env"),
        (("echo hello; sleep 1",), "echo"),
        (("--odd",), "job"),
    ],
)
def test_a_name_is_made_from_the_script_else_the_program(
    command: tuple[str, ...], base: str
) -> None:
    assert made_name(command).rsplit("-", 1)[0] == base


def test_the_current_directory_travels_unless_it_holds_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    assert spec_of(Typed(command=("true",)))["workdir"] == str(project)
    assert "workdir" not in spec_of(Typed(command=("true",), no_workdir=True))
    monkeypatch.setattr("tempfile.tempdir", str(project))
    assert "workdir" not in spec_of(Typed(command=("true",)))
    monkeypatch.chdir("/")
    chosen = spec_of(Typed(command=("true",), workdir=Path("etc")))
    assert chosen["workdir"] == "/etc"


@pytest.mark.parametrize("below_home", [0, 1, None])
def test_the_home_directory_and_those_around_it_are_sent_only_when_they_are_named(
    below_home: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "homes" / "ann"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").touch()
    (home / "a.py").touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path / "none"))
    monkeypatch.chdir("/" if below_home is None else [home, home.parent][below_home])
    words = ["run", "--dry-run", "-n", "a"]
    assert main_run([*words, "--", "true"]) == 2
    told = capsys.readouterr().err
    assert "it contains a home directory" in told
    assert "--workdir DIR" in told
    for way in ("--yes", "--no-workdir"):
        assert main_run([*words, way, "--", "true"]) == 0
        assert "workdir none" in " ".join(capsys.readouterr().out.split())
    assert main_run([*words, "--workdir", str(home), "--", "true"]) == 0
    said = capsys.readouterr()
    assert f"{home} (a snapshot)" in said.out
    assert "left out of the workdir as possible credentials: .ssh/; to s" in said.err


NOON = datetime(2026, 11, 22, 12, 0, tzinfo=timezone(timedelta(hours=2)))


def test_every_request_of_time_and_place_has_its_field() -> None:
    requests = RequestOptions(
        image="u:1",
        begin="30m",
        start_by="2h",
        signal="USR1@2m",
        constraint=("zone=a,b", "node!=n3", "nvme"),
        topology="require:rack",
        exclusive=True,
        apart_from=("x",),
        preemptible=True,
    )
    assert requests.fields(NOON) == {
        "image": "u:1",
        "begin": "30m",
        "start_by": "2h",
        "warn": "USR1@2m",
        "constraints": {"zone": ["a", "b"], "node": {"not": ["n3"]}, "nvme": [True]},
        "topology": "require:rack",
        "exclusive": True,
        "apart_from": ["x"],
        "preemptible": True,
    }
    assert RequestOptions().fields(NOON) == {}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("16:00", "2026-11-22T16:00:00+02:00"),
        ("8:30", "2026-11-23T08:30:00+02:00"),
        ("2026-12-01T08:00", "2026-12-01T08:00:00+02:00"),
        ("2026-12-01T08:00Z", "2026-12-01T08:00:00+00:00"),
        ("30m", "30m"),
        ("25:00", "25:00"),
    ],
)
def test_a_moment_is_that_of_whoever_types(typed: str, meant: str) -> None:
    """A time of day is the next one; what is none is left to the spec's reader to
    refuse."""
    assert RequestOptions(begin=typed).fields(NOON) == {"begin": meant}


@pytest.mark.parametrize("typed", ["=a", "!=a", ""])
def test_a_constraint_names_a_label(typed: str) -> None:
    with pytest.raises(SpecInvalid, match="name of the label is missing"):
        constraints_of([typed])


def test_a_label_is_given_once() -> None:
    with pytest.raises(SpecInvalid, match="given twice"):
        constraints_of(["zone=a", "zone=b"])


def test_a_range_of_nodes_is_an_elastic_job() -> None:
    assert nodes_of("2-4") == {"nodes": 4, "elastic": {"min_nodes": 2, "max_nodes": 4}}
    assert nodes_of("4") == {"nodes": 4}
    assert nodes_of("many") == {"nodes": "many"}


def test_other_forms_ask_for_what_else_the_job_asks_for_of_a_node() -> None:
    forms = forms_of(("a100:8", "2x4"), {"gpu": "h100:8", "memory": "64GB"})
    assert forms == [
        {"resources": {"gpu": "a100:8", "memory": "64GB"}},
        {"resources": {"gpu": 4, "memory": "64GB"}, "nodes": 2},
    ]
    with pytest.raises(SpecInvalid, match="number of GPUs is missing"):
        forms_of((" ",), {})


@pytest.mark.parametrize("option", ["--time", "-t", "--max-duration"])
def test_a_limit_may_be_called_as_in_a_spec_file(option: str) -> None:
    _, bound, _ = build().parse_args(
        ["run", option, "3h", "--", "true"], exit_on_error=False
    )
    assert bound.arguments["time"] == "3h"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--time", "-5m"), "-5m"),
        (("-t", "-5m"), "-5m"),
        (("--nodes", "-2-4"), "-2-4"),
        (("--begin", "-30m"), "-30m"),
        (("--priority", "-5..3"), "-5..3"),
    ],
)
def test_a_value_below_nothing_is_judged_as_a_value(
    words: tuple[str, str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main_run(["run", *words, "--dry-run", "--no-workdir", "--", "true"]) == REFUSED
    )
    assert f'"{value}" is no' in capsys.readouterr().err


def test_a_command_keeps_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--priority", "-5", "--dry-run", "--", "kill", "-9m", "--x", "-1"]
    assert list(with_negatives(words)) == ["run", "--priority=-5", *words[3:]]


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (
            ("node!=n1", "node!=n2,n1"),
            "write: --constraint node!=n1,n2 for neither of them",
        ),
        (("zone=a", "zone=b"), "write: --constraint zone=a,b for either of them"),
        (
            ("zone=a", "zone!=b"),
            "keep one: zone=VALUE already excludes all other values",
        ),
        (
            ("nvme", "nvme=yes"),
            "keep one: nvme=VALUE already excludes all other values",
        ),
    ],
)
def test_a_label_that_is_given_twice_is_refused_with_the_one_option_for_both(
    typed: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(SpecInvalid, match="is given twice") as refused:
        constraints_of(typed)
    assert refused.value.hint == hint


def test_nodes_from_the_most_to_the_fewest_are_refused_with_the_right_order() -> None:
    with pytest.raises(SpecInvalid) as refused:
        nodes_of("4-2")
    assert refused.value.hint == "write: --nodes 2-4"


@pytest.mark.parametrize(
    ("begin", "is_told"),
    [("2020-01-01T00:00Z", True), ("2999-01-01T00:00Z", False), ("1h", False)],
)
def test_a_begin_that_is_past_is_told(
    begin: str,
    is_told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path))
    words = ["run", "--begin", begin, "--dry-run", "--no-workdir", "--", "true"]
    assert main_run(words) == 0
    told = "the begin time 2020-01-01 00:00:00 UTC is in the past: the job may start at"
    assert (told in capsys.readouterr().err) == is_told


def test_a_signal_before_no_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path))
    words = ["run", "--signal", "USR1@2m", "--dry-run", "--no-workdir", "--", "true"]
    assert main_run(words) == REFUSED
    assert "--time 4h" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "meant"), [("8", 8), ("0.5", 0.5), ("h100:8", "h100:8")]
)
def test_a_flag_of_a_command_line_is_read_as_the_number_it_is(
    flag: str, meant: Any
) -> None:
    assert number(flag) == meant
