"""corral report: the same numbers in words, in a table, in CSV and on a page."""

from datetime import UTC, datetime

import pytest

from corral.cli.error_output import Usage
from corral.cli.planner.output import show_report
from corral.cli.report import VERDICTS, _parse_moment, _print_csv, shown
from corral.domain.ids import AttemptNumber, QueueName, UserName, job_id
from corral.domain.ledger import UsageAmounts, UsageRecord
from corral.insight.reports import BY, KINDS, report
from corral.plan.page import page
from corral.wire.reports import ReportView, encoded

HOUR = 3600.0


def found(kind: str, by: str, *, limit: int = 10) -> ReportView:
    """Ann held 10 h, of which 8 were of use; Bo 5 h a day later, and all was lost."""
    rows = [
        UsageRecord(
            day=20_000 + at,
            queue=QueueName("team"),
            user=UserName(user),
            gpu_type="h100",
            amounts=amounts,
            job=job_id(at + 1),
            attempt=AttemptNumber(1),
            name=f"train-{user}",
        )
        for at, (user, amounts) in enumerate(
            [
                (
                    "ann",
                    UsageAmounts(10 * HOUR, 10 * HOUR, 9 * HOUR, 0, 8 * HOUR, 2 * HOUR),
                ),
                (
                    "bo",
                    UsageAmounts(
                        allocated_gpu_seconds=5 * HOUR, failed_gpu_seconds=5 * HOUR
                    ),
                ),
            ]
        )
    ]
    body = encoded(
        report(kind, by, rows, limit), first=20_000, last=20_001, currency="EUR"
    )
    return ReportView.model_validate_json(body)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("kind", KINDS)
def test_every_report_has_a_verdict_a_table_and_a_page(kind: str, by: str) -> None:
    told = shown(found(kind, by))
    assert told.verdict
    assert told.tables
    for table in told.tables:
        assert len({len(row) for row in (*table.rows, table.columns)}) == 1
    text = page(told)
    assert "<svg" in text
    assert "2024-10-04 to 2024-10-05" in text


def test_the_verdict_is_of_all_rows_and_those_left_out_are_counted() -> None:
    told = shown(found("goodput", "user", limit=1))
    assert (
        "Of 15.0 GPU-hours that were held, 8.00 went into training steps"
        in told.verdict
    )
    assert "goodput 53.3 %" in told.verdict
    table = told.tables[0]
    assert [row[0] for row in table.rows] == ["ann", "total"]
    assert "1 more row is left out" in table.note


def test_csv_has_a_line_for_each_and_nothing_where_nothing_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print_csv(found("usage", "job"))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.startswith(
        "job,name,allocated (GPU-hours),used (GPU-hours),utilisation (share)"
    )
    assert first.startswith("j1,train-ann,10,9,0.9,")
    assert second.startswith("j2,train-bo,5,0,,")


def test_tokens_have_columns_only_where_there_are_any() -> None:
    for kind in ("usage", "cost"):
        (table,) = shown(found(kind, "user")).tables
        assert "requests" not in [column.name for column in table.columns]
        amounts = UsageAmounts(requests=3.0, prompt_tokens=9.0, output_tokens=2.0)
        row = UsageRecord(
            day=20_000,
            queue=QueueName("team"),
            user=UserName("cleo"),
            gpu_type="",
            amounts=amounts,
        )
        body = encoded(report(kind, "user", [row]), first=1, last=2, currency="EUR")
        (table,) = shown(ReportView.model_validate_json(body)).tables
        assert [column.name for column in table.columns[-4:]] == [
            "requests",
            "tokens in",
            "cached",
            "tokens out",
        ]
        assert table.rows[0][0] == "cleo"
        assert table.rows[0][-4:] == (3.0, 9.0, 0.0, 2.0)


def test_a_period_nobody_held_anything_in_is_said_to_be_one() -> None:
    body = encoded(report("cost", "queue", []), first=0, last=1, currency="EUR")
    told = shown(ReportView.model_validate_json(body))
    assert (told.verdict, told.tables) == ("No GPU was allocated in this period.", ())


@pytest.mark.parametrize(
    ("amounts", "kind", "verdict"),
    [
        (UsageAmounts(requests=3), "usage", "No GPU was allocated in this period."),
        (UsageAmounts(requests=3), "cost", "No GPU was allocated in this period."),
        (
            UsageAmounts(allocated_gpu_seconds=2 * HOUR),
            "usage",
            "Of 2.00 GPU-hours that were held, none were measured.",
        ),
        (
            UsageAmounts(allocated_gpu_seconds=2 * HOUR),
            "cost",
            "whether kernels ran was not measured",
        ),
    ],
)
def test_what_was_not_measured_is_not_an_unknown_part(
    amounts: UsageAmounts, kind: str, verdict: str
) -> None:
    row = UsageRecord(
        day=20_000,
        queue=QueueName("team"),
        user=UserName("ann"),
        gpu_type="h100",
        amounts=amounts,
    )
    body = encoded(
        report(kind, "queue", [row]), first=20_000, last=20_001, currency="EUR"
    )
    text = shown(ReportView.model_validate_json(body)).verdict
    assert verdict in text
    assert "unknown" not in text


def test_a_moment_is_so_long_ago_or_a_date() -> None:
    assert _parse_moment("7d", 10 * 86400.0, "--since") == 3 * 86400.0
    november = datetime(2026, 11, 1, tzinfo=UTC)
    assert _parse_moment("2026-11-01", 0.0, "--since") == november.timestamp()
    with pytest.raises(Usage):
        _parse_moment("lately", 0.0, "--since")


def test_each_kind_has_its_verdict() -> None:
    assert VERDICTS.keys() | {"cost"} == KINDS.keys()


def test_a_report_is_no_wider_than_a_terminal_and_tiny_numbers_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = found("goodput", "job")
    tiny = told.rows[0].model_copy(update={"values": [3.6e-05] * len(told.columns)})
    told = told.model_copy(update={"rows": [tiny, *told.rows]})
    for width in (120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        show_report(shown(told, figures=False))
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        assert not any("e-05" in line for line in lines)


LOST = "0 wasted; whether kernels ran was not measured"


@pytest.mark.parametrize(
    ("money", "listed", "unpriced", "verdict", "columns"),
    [
        (
            8.67,
            0.0,
            0.0,
            f"8.67 EUR at the cluster's prices ({LOST})",
            ["money", "wasted", "not used"],
        ),
        (
            0.0,
            10.8,
            0.0,
            f"10.8 USD at list prices of clouds ({LOST})",
            ["list price", "wasted of it", "not used of it"],
        ),
        (
            0.0,
            0.0,
            2 * HOUR,
            "2.00 GPU-hours have no price",
            ["money", "wasted", "not used"],
        ),
        (
            8.67,
            10.8,
            HOUR,
            f"8.67 EUR at the cluster's prices ({LOST}); "
            f"10.8 USD at list prices of clouds ({LOST}); "
            "1.00 GPU-hours have no price",
            [
                "money",
                "wasted",
                "not used",
                "list price",
                "wasted of it",
                "not used of it",
            ],
        ),
    ],
)
def test_two_price_bases_are_told_apart_with_their_currencies(
    money: float, listed: float, unpriced: float, verdict: str, columns: list[str]
) -> None:
    amounts = UsageAmounts(
        allocated_gpu_seconds=2 * HOUR,
        useful_gpu_seconds=2 * HOUR,
        unpriced_gpu_seconds=unpriced,
        money=money,
        list_money=listed,
    )
    row = UsageRecord(
        day=1,
        queue=QueueName("team"),
        user=UserName("ann"),
        gpu_type="h100",
        amounts=amounts,
    )
    body = encoded(report("cost", "queue", [row]), first=0, last=1, currency="EUR")
    told = shown(ReportView.model_validate_json(body))
    assert told.verdict == f"2.00 GPU-hours: {verdict}."
    (table,) = told.tables
    prices = [one.name for one in table.columns if one.unit in ("EUR", "USD")]
    assert prices == columns
