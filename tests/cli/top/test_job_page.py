"""The page of a job fills any terminal, and its log has what is left."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from corral.cli.top.job_feed import JobFeed
from corral.cli.top.job_page import JobKnown, page
from corral.cli.top.state import HeadLink
from corral.cli.top.styled_text import plain
from corral.wire import api
from tests.cli.top.town import NOW, Town


def known(log: list[str]) -> JobKnown:
    town = Town.of(1, 1, running=1)
    town.log = log
    feed = JobFeed(town, "j0", wall=lambda: NOW)
    asyncio.run(feed.step())
    return feed.known


FULL = known([f"line {at}" for at in range(60)])


@given(width=st.integers(1, 250), height=st.integers(1, 80))
def test_it_is_exactly_as_large_as_the_terminal(width: int, height: int) -> None:
    for one in (FULL, JobKnown()):
        lines = page(one, width, height, NOW)
        assert len(lines) == height
        assert all(sum(len(part.text) for part in line) == width for line in lines)


def test_it_says_what_the_job_is_why_its_curves_and_its_newest_lines() -> None:
    lines = [plain(line) for line in page(FULL, 80, 24, NOW)]
    assert lines[0] == "train-0 j0  RUNNING"
    assert lines[1].startswith("queue team-0, user-0, 1 node with 1 GPUs, attempt 1")
    assert lines[2:4] == ["2 nodes are taken", "ask for less"]
    assert lines[4].split() == ["CURVES", "NOW", "MIN", "MEAN", "MAX"]
    assert lines[5].replace(" %", "%").split()[:6] == [
        "GPU",
        "busy",
        "75%",
        "25%",
        "42%",
        "75%",
    ]
    assert lines[7] == "LOG  of rank 0"
    assert lines[-1] == "line 59"


def test_on_a_low_terminal_curves_give_way_to_the_log() -> None:
    lines = [plain(line) for line in page(FULL, 80, 9, NOW)]
    assert "line 59" in lines
    assert lines.index("line 59") - lines.index("LOG  of rank 0") == 4


def test_why_it_failed_and_why_there_is_no_log_are_said() -> None:
    assert FULL.why is not None
    assert FULL.job is not None
    failed = {
        "attempt": 1, "failure": "oom", "text": "out of GPU memory", "culprit": "j0",
        "evidence": "rank 3 asked for 2 GiB", "quote": "CUDA error", "next": "a smaller batch",
    }  # fmt: skip
    why = api.Why.model_validate(FULL.why.model_dump() | {"failed": failed})
    over = FULL.job.model_copy(update={"state": "FAILED", "exit_code": 3})
    one = JobKnown(job=over, why=why, log_said="another's")
    told = [plain(line) for line in page(one, 80, 24, NOW)]
    assert told[0] == "train-0 j0  FAILED with exit code 3"
    assert "out of GPU memory: rank 3 asked for 2 GiB (CUDA error)" in told
    assert "next: a smaller batch" in told
    assert "no curve yet: a point is kept each 10 s" in told
    assert "LOG  another's" in told
    gone = JobKnown(job=over, link=HeadLink(False, NOW, "no head answers", ""))
    assert "LOG  no answer: no head answers; trying again" in [
        plain(line) for line in page(gone, 80, 24, NOW)
    ]
    assert plain(page(JobKnown(link=gone.link), 80, 3, NOW)[0]) == "no head answers"


def test_what_a_job_prints_cannot_move_the_terminal() -> None:
    lines = page(known(["\x1b[2J\rgone\ttab"]), 80, 24, NOW)
    told = "".join(plain(line) for line in lines)
    assert "\x1b" not in told
    assert "\r" not in told
    assert "\t" not in told
