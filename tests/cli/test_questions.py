"""Questions before a change: what Enter and the end of the input mean, and what is
lost."""

import io
import os
import time
from collections.abc import Iterator
from typing import IO, Any

import pytest

from corral.cli.head_options import Change, declined
from corral.cli.lost_work import array_impact, job_impact
from corral.cli.main import run
from corral.domain.errors import Conflict
from corral.wire.api import JobDetail, JobView
from corral.wire.job_parts import AttemptView, CheckpointView, ShapeView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "destroys", "agreed"),
    [
        ("", False, False),
        ("", True, False),
        ("\n", False, True),
        ("\n", True, False),
        ("y\n", False, True),
        ("YES\n", True, True),
        ("n\n", False, False),
        ("sure\n", True, False),
    ],
)
def test_the_end_of_the_input_is_a_no_and_enter_destroys_nothing(
    typed: str, destroys: bool, agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", err)
    assert Change().agreed("stop it?", destroys=destroys) is agreed
    assert err.getvalue().startswith(f"stop it? {'[y/N]' if destroys else '[Y/n]'} ")


def test_a_script_is_not_asked_before_a_change_that_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert Change().agreed("submit?")


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[str]]:
    """The end of the pipe at the standard input that is written to."""
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as end:
        monkeypatch.setattr("sys.stdin", stdin)
        yield end


@pytest.mark.parametrize(
    ("piped", "agreed"),
    [("y\n", True), ("yes", True), ("n\n", False), ("\n", False), ("", True)],
)
def test_an_answer_that_is_piped_in_counts_before_something_ends(
    piped: str, agreed: bool, pipe: IO[str]
) -> None:
    pipe.write(piped)
    pipe.close()
    assert Change().agreed("stop it?", destroys=True) is agreed


@pytest.mark.parametrize(
    "words",
    [["secret", "rm", "x"], ["user", "rm", "ann"], ["token", "revoke", "t1"]],
)
def test_a_no_is_refused_with_the_reason_and_how_to_skip_the_question(
    words: list[str], pipe: IO[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pipe.write("n\n")
    pipe.close()
    assert run(words) == 3
    assert capsys.readouterr().err == (
        "corral: nothing was changed: the question was not answered with yes\n"
        "  answer y, or add --yes to skip the question\n"
    )


def test_a_refusal_says_what_was_not_done() -> None:
    refusal = declined("nothing was stopped", hint="run: corral down --leave")
    assert refusal.message.startswith("nothing was stopped: the question was not")
    assert refusal.hint == "run: corral down --leave"


def test_a_line_of_a_list_is_no_answer(pipe: IO[str]) -> None:
    pipe.write("train2\ntrain3\n")
    pipe.flush()
    with pytest.raises(Conflict, match="standard input contains 'train2'") as refused:
        Change().agreed("stop it?", destroys=True)
    assert "-y" in refused.value.hint
    assert Change(yes=True).agreed("stop it?", destroys=True)
    assert Change(json=True).agreed("stop it?", destroys=True)


def test_nobody_waits_for_a_pipe_that_nobody_writes_to(pipe: IO[str]) -> None:
    started = time.monotonic()
    assert Change().agreed("stop it?", destroys=True)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "stdin", [io.StringIO(""), io.StringIO("n\n"), Terminal("n\n"), None]
)
def test_a_script_without_a_pipe_is_taken_at_its_word(
    stdin: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal is not read either where the question goes elsewhere (`2>log`)."""
    monkeypatch.setattr("sys.stdin", stdin)
    assert Change().agreed("stop it?", destroys=True)


def job(state: str, *, saves: tuple[float, ...] = (), **more: Any) -> JobDetail:
    return JobDetail.model_construct(
        id="j1",
        name="train",
        state=state,
        shape=ShapeView.model_construct(nodes=2, gpus_per_node=4.0),
        attempts=[AttemptView.model_construct(running_at=1000.0)],
        checkpoints=[
            CheckpointView.model_construct(at=at, quarantined="") for at in saves
        ],
        **more,
    )


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (job("QUEUED"), "train (j1) is QUEUED: no work would be lost"),
        (job("DONE"), "train (j1) is DONE"),
        (
            job("RUNNING"),
            "train (j1) is RUNNING on 8 GPUs and has no save: 10 min of work would be lost",
        ),
        (
            job("RUNNING", service="chat"),
            "train (j1) is RUNNING on 8 GPUs, and finishes its requests; chat gets another "
            "replica",
        ),
        (
            job("RUNNING", saves=(1100.0, 1480.0)),
            "train (j1) is RUNNING on 8 GPUs; its last save was 2 min ago: at most 2 min of work "
            "would be lost",
        ),
        (
            job("RUNNING", saves=(400.0,)),
            "train (j1) is RUNNING on 8 GPUs; its last save was 20 min ago: at most 10 min of "
            "work would be lost",
        ),
    ],
)
def test_what_stopping_a_job_loses(one: JobDetail, text: str) -> None:
    assert job_impact(one, now=1600.0) == text


def test_what_stopping_an_array_ends() -> None:
    states = ("DONE", "RUNNING", "RUNNING", "QUEUED")
    jobs = [
        JobView.model_construct(
            name=f"sweep_{index}", state=state, started_at=1000.0 + index
        )
        for index, state in enumerate(states)
    ]
    assert array_impact(jobs, now=1061.0) == (
        "sweep has 3 unfinished jobs; 2 of them run, the longest for 1 min"
    )
