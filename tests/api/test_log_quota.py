"""Quotas of logs: older ones are cut first, the end of each stays, and the log says
so."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.api.kept_logs import NOTICE_BYTES, LogKeeper, RankKey
from corral.domain.ids import AttemptNumber, JobId, UserName
from corral.domain.log_quota import (
    CUT_TO_PART,
    ENDED_BYTES,
    KeptLogs,
    LogPart,
    cut_order,
    excess_bytes,
)
from corral.domain.quota import ClusterLimits
from tests.api.heads import Agent, Head, ended, eventually, serving, up

LINE = b"a line of a log, number %06d\n"
RANK_BYTES = 150_000  # more than twice what an ended rank keeps


def lines(count: int) -> bytes:
    return b"".join(LINE % number for number in range(count))


def key(job: str, attempt: int = 1, rank: int = 0) -> RankKey:
    return JobId(job), AttemptNumber(attempt), rank


def text_of(keeper: LogKeeper, rank: RankKey) -> bytes:
    return keeper.read(rank, 0, 10**9)[1]


def test_a_cut_log_keeps_its_last_lines_and_its_places_and_says_what_is_gone(
    tmp_path: Path,
) -> None:
    keeper, whole = LogKeeper(tmp_path, most_bytes=10**8), lines(5_000)
    keeper.append(key("j1"), 0, whole)
    freed = keeper.cut(key("j1"), 10_000, "the quota")
    for reader in (keeper, LogKeeper(tmp_path, most_bytes=10**8)):
        place, text = reader.read(key("j1"), 0, 10**9)
        notice, _, rest = text.partition(b"\n")
        assert whole.endswith(rest)
        assert 10_000 - len(LINE) <= len(rest) <= 10_000
        assert rest.startswith(b"a line")
        gone = len(whole) - len(rest)
        assert (
            notice.decode()
            == f"[corral] {gone:,} bytes before this line were dropped: the quota"
        )
        assert place + len(text) == reader.end(key("j1")) == len(whole)
        assert reader.kept(key("j1")) == len(whole)
    assert freed == len(whole) - len(text)
    assert keeper.sizes.bytes[key("j1")[:2]] == len(text)
    assert keeper.append(key("j1"), len(whole), b"more\n") == len(whole) + 5
    assert text_of(keeper, key("j1")).endswith(b"more\n")


def test_a_rotated_log_is_cut_across_its_files_and_one_long_line_keeps_its_end(
    tmp_path: Path,
) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=40_000)
    for at in range(0, 60_000, 5_000):
        keeper.append(key("j1"), at, b"\r".join([b"step"] * 1_000))
    held = sum(path.stat().st_size for path in tmp_path.rglob("rank-0.log*"))
    assert keeper.sizes.bytes[key("j1")[:2]] == held
    assert keeper.cut(key("j1"), 2_000, "the quota") > 0
    assert text_of(keeper, key("j1")).endswith(b"step\rstep")
    assert len(text_of(keeper, key("j1"))) >= 2_000
    assert not list(tmp_path.rglob("*.log.1"))


def test_a_short_log_is_left_as_it_is(tmp_path: Path) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=10**8)
    keeper.append(key("j1"), 0, b"x" * NOTICE_BYTES)
    assert keeper.cut(key("j1"), 0, "the quota") == 0
    assert text_of(keeper, key("j1")) == b"x" * NOTICE_BYTES


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 3), st.sampled_from(list(LogPart))),
        unique_by=lambda one: one[:2],
    )
)
def test_logs_of_earlier_attempts_go_first_and_those_of_running_jobs_last(
    kept: list[tuple[int, int, LogPart]],
) -> None:
    logs = [
        KeptLogs(key=(JobId(f"j{job}"), AttemptNumber(number)), part=part)
        for job, number, part in kept
    ]
    order = cut_order(logs)
    assert sorted(order, key=repr) == sorted(logs, key=repr)
    for earlier, later in zip(order, order[1:], strict=False):
        assert earlier.part <= later.part
        if earlier.part == later.part:
            assert int(earlier.key[0][1:]) <= int(later.key[0][1:])


def test_nothing_is_cut_within_the_limit_and_below_it_beyond() -> None:
    assert excess_bytes(100, 100) == 0
    assert excess_bytes(101, 100) == 101 - int(100 * CUT_TO_PART)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    limits = ClusterLimits(quotas={"log_bytes": 650_000}, user_requests=10_000.0)
    with serving(tmp_path, more={"limits": limits}) as head:
        yield head


def running_on(agent: Agent) -> set[str]:
    return {one.key[0] for one in agent.wanted[-1].run} if agent.wanted else set()


def submit(head: Head, who: str, name: str) -> str:
    with head.http(who) as http:
        spec = {"name": name, "run": "x", "resources": {"gpu": 1}}
        answer = http.post("/v1/jobs", json={"specs": [spec], "key": name})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["jobs"][0]["id"])


def printed(head: Head, who: str, job: str) -> str:
    with head.http(who) as http, http.stream("GET", f"/v1/jobs/{job}/logs") as answer:
        pieces = [
            json.loads(row[6:])
            for row in answer.iter_lines()
            if row.startswith("data: ")
        ]
    return "".join(piece["data"] or "" for piece in pieces)


def use(head: Head, who: str) -> tuple[int, int]:
    """Bytes of logs that are used, and that were dropped."""
    with head.http("admin") as http:
        found = http.get(f"/v1/users/{who}").json()
    row = next(row for row in found["quotas"] if row["name"] == "log_bytes")
    return row["used"], found["log_bytes_dropped"]


def test_a_user_over_the_quota_loses_the_oldest_logs_and_no_end_and_others_lose_nothing(
    head: Head,
) -> None:
    keeper, quota = head.app.state.house.keeper, head.app.state.house.log_quota
    text = lines(RANK_BYTES // len(LINE % 0))

    def kept(job: str) -> None:
        head.loop.call_soon_threadsafe(keeper.append, key(job), 0, text)

    agent = Agent(head, "n1").hello()
    agent.beat()
    over = []
    for number in range(4):
        job = submit(head, "alice", f"a{number}")
        agent.until(lambda job=job: job in running_on(agent))  # type: ignore[misc]
        kept(job)
        agent.beat(ended((job, 1)))
        eventually(lambda job=job: job not in head.control.world.jobs)  # type: ignore[misc]
        over.append(job)
    running, other = submit(head, "alice", "runs"), submit(head, "bob", "other")
    agent.until(lambda: running_on(agent) == {running, other})
    agent.beat(up((running, 1)), up((other, 1)))
    for job in (running, other):
        kept(job)
    head.run(quota.enforce())
    used, dropped = use(head, "alice")
    assert used <= 650_000
    assert dropped > 0
    assert used + dropped == 5 * len(text)
    for job in (over[0], over[1]):
        log = printed(head, "alice", job)
        assert "were dropped: the limit of all logs of alice is 650 kB" in log
        assert log.endswith(text.decode()[-ENDED_BYTES // 2 :])
    for job in (over[3], running):
        assert printed(head, "alice", job) == text.decode()
    assert printed(head, "bob", other) == text.decode()
    assert use(head, "bob") == (len(text), 0)

    # The next head counts the same of what is on the disk.
    later = type(quota)(
        LogKeeper(keeper.sizes.root, most_bytes=10**6), head.control, {}
    )
    head.run(later.enforce())
    assert (later.used(UserName("alice")), later.dropped(UserName("alice"))) == (
        used,
        dropped,
    )
    agent.close()
