"""Tables on terminals of any width."""

import pytest

from corral.cli.output import cut, show_table, table


@pytest.mark.parametrize("columns", [5, 30, 40, 200])
def test_only_the_last_column_of_a_table_gives_way(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = table("ID", "NAME", "STATE", "WHY", right=("ID",))
    rows.add_row("j12345", "a-name-of-some-length", "CANCELLED", cut("a long story " * 5))
    show_table(rows)
    said = capsys.readouterr().out.splitlines()[1]
    assert said.startswith("j12345  a-name-of-some-length  CANCELLED  a long")
    assert said.endswith("…") == (columns < 100)
