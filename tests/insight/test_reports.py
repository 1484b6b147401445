"""Reports: whoever they are by, the sums are the same, and shares are of what they
say."""

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import QueueName, UserName, job_id
from corral.domain.ledger import AMOUNTS, UsageAmounts, UsageRecord, by_day, summed
from corral.insight.reports import BY, KINDS, report

amounts = st.builds(UsageAmounts, **dict.fromkeys(AMOUNTS, st.floats(0, 1e6)))
accounts = st.builds(
    UsageRecord,
    day=st.integers(0, 3),
    queue=st.sampled_from([QueueName("a"), QueueName("b")]),
    user=st.sampled_from([UserName("ann"), UserName("bo")]),
    gpu_type=st.sampled_from(["h100", "a100"]),
    amounts=amounts,
    job=st.sampled_from([job_id(1), job_id(2)]),
)


@given(rows=st.lists(accounts, max_size=12), by=st.sampled_from(list(BY)))
def test_rows_days_and_total_hold_the_same_gpu_seconds(
    rows: list[UsageRecord], by: str
) -> None:
    for kind in KINDS:
        found = report(kind, by, rows)
        for name in AMOUNTS:
            whole = sum(getattr(one.amounts, name) for one in rows)
            assert getattr(found.total, name) == pytest.approx(whole)
            assert sum(getattr(r.amounts, name) for r in found.rows) == pytest.approx(
                whole
            )
            assert sum(getattr(day, name) for _, day in found.days) == pytest.approx(
                whole
            )
        held = [row.amounts.allocated_gpu_seconds for row in found.rows]
        assert held == sorted(held, reverse=True), "who held most comes first"
        values = [column.of(found.total) for column in found.columns]
        assert all(one is None or one >= 0 for one in values)


@given(
    sizes=st.lists(st.integers(0, 5), max_size=9),
    limit=st.integers(0, 10),
    at_once=st.integers(1, 4),
)
def test_rows_are_the_most_first_however_many_are_sorted_at_once(
    sizes: list[int], limit: int, at_once: int
) -> None:
    rows = [held(f"u{number}", float(size)) for number, size in enumerate(sizes)]
    with mock.patch("corral.insight.reports.AT_ONCE", at_once):
        found = report("usage", "user", rows, limit)
    expected = sorted(
        rows, key=lambda one: (-one.amounts.allocated_gpu_seconds, one.user)
    )
    assert [row.name for row in found.rows] == [one.user for one in expected][:limit]
    assert found.rest == max(0, len(rows) - limit)
    assert found.total.allocated_gpu_seconds == sum(sizes)


def held(user: str, seconds: float) -> UsageRecord:
    return UsageRecord(
        day=1,
        queue=QueueName("a"),
        user=UserName(user),
        gpu_type="h100",
        amounts=UsageAmounts(allocated_gpu_seconds=seconds),
    )


def test_goodput_is_of_what_was_held_and_utilisation_of_what_was_measured() -> None:
    one = UsageAmounts(
        allocated_gpu_seconds=100 * 3600.0,
        measured_gpu_seconds=50 * 3600.0,
        used_gpu_seconds=40 * 3600.0,
        useful_gpu_seconds=90 * 3600.0,
        failed_gpu_seconds=4 * 3600.0,
    )

    def values(kind: str) -> dict[str, float | None]:
        return {column.name: column.of(one) for column in KINDS[kind]}

    assert values("goodput")["goodput"] == pytest.approx(0.9)
    assert values("goodput")["other"] == pytest.approx(6.0)
    assert values("usage")["utilisation"] == pytest.approx(0.8)
    assert values("usage")["measured"] == pytest.approx(0.5)
    assert values("waste")["failures"] == pytest.approx(4.0)
    nothing = {column.name: column.of(UsageAmounts()) for column in KINDS["goodput"]}
    assert nothing["goodput"] is None


@pytest.mark.parametrize(
    ("part", "seconds"),
    [
        ({"idle_gpu_seconds": 60.0}, 60.0),
        ({"idle_gpu_seconds": 10.0, "saving_gpu_seconds": 30.0}, 30.0),
    ],
)
def test_wasted_money_is_of_what_stood_idle_or_brought_nothing_whichever_is_more(
    part: dict[str, float], seconds: float
) -> None:
    saving = part.get("saving_gpu_seconds", 0.0)
    one = UsageAmounts(
        allocated_gpu_seconds=100.0,
        useful_gpu_seconds=100.0 - saving,
        money=10.0,
        list_money=30.0,
        **part,
    )
    wasted = next(column for column in KINDS["cost"] if column.name == "wasted")
    assert wasted.of(one) == pytest.approx(10.0 * seconds / 100.0)
    of_list = next(column for column in KINDS["cost"] if column.name == "wasted of it")
    assert of_list.of(one) == pytest.approx(30.0 * seconds / 100.0)


def test_an_evenly_40_percent_busy_cluster_has_60_percent_not_used_and_nothing_wasted() -> (
    None
):
    one = UsageAmounts(
        allocated_gpu_seconds=200.0,
        measured_gpu_seconds=200.0,
        used_gpu_seconds=80.0,
        useful_gpu_seconds=200.0,
        money=50.0,
    )
    cost = {column.name: column.of(one) for column in KINDS["cost"]}
    usage = {column.name: column.of(one) for column in KINDS["usage"]}
    assert cost["wasted"] == 0.0
    assert cost["not used"] == pytest.approx(30.0)
    assert usage["not used"] == pytest.approx(0.6)
    unmeasured = one._replace(measured_gpu_seconds=0.0, used_gpu_seconds=0.0)
    assert {column.name: column.of(unmeasured) for column in KINDS["cost"]}[
        "not used"
    ] is None


@given(
    since=st.floats(0, 1e6, allow_nan=False),
    length=st.floats(0, 1e6, allow_nan=False),
)
def test_a_span_is_divided_into_days_without_a_gap(since: float, length: float) -> None:
    parts = list(by_day(since, since + length))
    assert sum(seconds for _, seconds in parts) == pytest.approx(length, abs=1e-6)
    assert all(0 < seconds <= 86400.0 for _, seconds in parts)
    assert [day for day, _ in parts] == sorted({day for day, _ in parts})


@given(rows=st.lists(accounts, max_size=12))
def test_summed_rows_are_one_a_key_and_lose_nothing(rows: list[UsageRecord]) -> None:
    found = summed(rows)
    for at, name in enumerate(AMOUNTS):
        whole = sum(one.amounts[at] for one in rows)
        assert sum(one.amounts[at] for one in found.values()) == pytest.approx(whole), (
            name
        )
    assert all(one.key == key for key, one in found.items())
    assert len({json.dumps(key) for key in found}) == len(found)


def tokens(user: str, queue: str, requests: int) -> UsageRecord:
    return UsageRecord(
        day=3,
        queue=QueueName(queue),
        user=UserName(user),
        gpu_type="",
        amounts=UsageAmounts(
            requests=float(requests),
            prompt_tokens=100.0 * requests,
            cached_tokens=40.0 * requests,
            output_tokens=7.0 * requests,
        ),
    )


def test_tokens_are_reported_by_user_and_queue_but_not_by_type_or_as_waste() -> None:
    rows = [tokens("ann", "chat", 1), tokens("ann", "chat", 2), tokens("bob", "x", 4)]
    for kind in ("usage", "cost"):
        found = report(kind, "user", rows)
        places = [column.name for column in found.columns]
        first = places.index("requests")
        assert places[first:] == ["requests", "tokens in", "cached", "tokens out"]
        values = {
            row.name: [column.of(row.amounts) for column in found.columns[first:]]
            for row in found.rows
        }
        assert values == {"ann": [3, 300, 120, 21], "bob": [4, 400, 160, 28]}
        assert {row.name for row in report(kind, "queue", rows).rows} == {"chat", "x"}
        assert report(kind, "gpu-type", rows).rows == ()
    for kind in ("waste", "goodput"):
        assert report(kind, "user", rows).rows == ()
