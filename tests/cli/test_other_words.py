"""Words of other tools lead to the command that does the same."""

import pytest

from corral.cli.embedded_head import late_text
from corral.cli.main import OTHER_WORDS, TOP, other_word, run
from corral.cli.unfinished_work import UnfinishedWork, awaited_text
from corral.client.head_target import unreachable
from corral.wire.api import JobView, NodeView


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_a_word_of_another_tool_names_a_command_that_there_is(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word, "x"]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"corral: there is no command {word}"
    first = err.split("run: corral ")[1].split()[0].strip(";,")
    assert first in {one.name for one in TOP} | {"node", "queue", "user", "service"}


def test_commands_of_this_tool_and_words_of_none_are_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [
        other_word(["ps"]),
        other_word(["user", "list"]),
        other_word(["frobnicate"]),
    ] == [None] * 3
    assert run(["frobnicate"]) == 2
    assert "run: corral --help" in capsys.readouterr().err


def test_a_long_end_says_what_it_waits_for() -> None:
    jobs = [
        JobView.model_construct(id="j3", name="train", nodes=["n1", "n2"], array=None),
        JobView.model_construct(id="j4", name="waits", nodes=[], array=None),
    ]
    nodes = [
        NodeView.model_construct(id="n1", liveness="alive"),
        NodeView.model_construct(id="n2", liveness="silent"),
        NodeView.model_construct(id="n3", liveness="dead"),
    ]
    assert awaited_text(UnfinishedWork(jobs=jobs), nodes, 135.0) == (
        "waiting at most 135 s for 1 job to end: train (j3) on n1,n2; node n2 is silent and does "
        "not answer"
    )
    assert awaited_text(UnfinishedWork(jobs=jobs[1:]), nodes, 135.0) == ""


@pytest.mark.parametrize(
    ("pids", "head", "head_runs", "end"),
    [
        ([12, 13], 7, True, ": its head (process 7) still runs"),
        ([], None, True, ": its head still runs"),
        ([12, 13], None, False, ": processes of its nodes still run: 12, 13"),
        ([], None, False, ", but all of its processes have ended now"),
    ],
)
def test_an_end_that_takes_too_long_names_the_processes(
    pids: list[int], head: int | None, head_runs: bool, end: str
) -> None:
    assert late_text(pids, head, head_runs=head_runs) == (
        f"the cluster did not stop in time{end}"
    )


def test_a_certificate_that_is_not_trusted_names_the_variable() -> None:
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed"
    error = unreachable(
        "https://head:1", OSError(text), hint="see that a head runs there"
    )
    assert "does not trust" in error.message
    assert "CORRAL_CA" in error.hint
    assert "head runs there" not in error.hint
