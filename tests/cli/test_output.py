"""Tables on terminals of any width, and moments in the reader's own time."""

import time

import pytest

from corral.cli.printing import clean, cut, show_table, table
from corral.domain.time_point import moment_text


@pytest.mark.parametrize("columns", [5, 30, 40, 200])
def test_only_the_last_column_of_a_table_gives_way(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = table("ID", "NAME", "STATE", "WHY", right=("ID",))
    rows.add_row(
        "j12345", "a-name-of-some-length", "CANCELLED", cut("a long story " * 5)
    )
    show_table(rows)
    said = capsys.readouterr().out.splitlines()[1]
    assert said.startswith("j12345  a-name-of-some-length  CANCELLED  a long")
    assert said.endswith("…") == (columns < 100)


def test_nothing_is_shortened_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = table("ID", "WHY")
    rows.add_row("j1", cut("a long story " * 20 + "ends"))
    show_table(rows)
    assert capsys.readouterr().out.endswith("story ends\n")


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("UTC", "it starts at 2026-11-22 06:54:50 UTC at the latest"),
        ("JST-9", "it starts at 2026-11-22 15:54:50 JST at the latest"),
        ("EST5", "it starts at 2026-11-22 01:54:50 EST at the latest"),
    ],
)
def test_the_heads_moments_are_told_in_the_readers_own_time(
    zone: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert clean(f"it starts at {moment_text(1795330490.0)} at the latest") == said
        assert clean("on 2026-02-31 06:54:50 UTC") == "on 2026-02-31 06:54:50 UTC"
    finally:
        monkeypatch.undo()
        time.tzset()
