"""plan predict and plan validate: whole tables, rows that are refused, files that are
none."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from corral.cli.main import run
from corral.plan.rows.columns import MEASURED, NEEDED

DATA = Path(__file__).parents[3] / "validation/data"
KIND = "memory_ci"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten rows as they were measured, and one that says too little."""
    with gzip.open(DATA / f"{KIND}.csv.gz", "rt", newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if row["layers"] and row["seq_len"]
        ][:10]
    rows.append(rows[0] | {"layers": ""})
    made = tmp_path / "rows.csv"
    with made.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return made


def predicted(table: Path, out: Path) -> list[dict[str, str]]:
    assert run(["plan", "predict", str(table), "--kind", KIND, "--out", str(out)]) == 0
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_row_is_predicted_or_refused_with_its_reason(
    table: Path, tmp_path: Path
) -> None:
    *rows, last = predicted(table, tmp_path / "out.csv")
    assert len(rows) == 10
    assert all(
        float(row["pred_memory_gb_per_gpu"]) > 0 and not row["refused"] for row in rows
    )
    assert last["pred_memory_gb_per_gpu"] == ""
    assert "layers" in last["refused"]


def test_measured_cells_change_no_prediction(table: Path, tmp_path: Path) -> None:
    told = predicted(table, tmp_path / "told.csv")
    bare = tmp_path / "bare.csv"
    with bare.open("w", newline="") as file:
        writer = csv.DictWriter(
            file, [name for name in told[0] if not name.startswith("pred")]
        )
        writer.writeheader()
        hidden = {
            "mem_max_allocated_gb": "",
            "mem_allocated_gb": "",
            "iter_time_s_median": "",
        }
        for row in told:
            kept = {
                name: value
                for name, value in row.items()
                if not name.startswith("pred")
            }
            writer.writerow(kept | hidden)
    again = predicted(bare, tmp_path / "again.csv")
    for column in (
        "pred_memory_gb_per_gpu",
        "pred_step_time_s",
        "pred_tokens_per_s_per_gpu",
    ):
        assert [row[column] for row in again] == [row[column] for row in told]
        assert told[0][column]


def test_validate_tells_errors_and_draws_them(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert (
        run(["plan", "validate", KIND, str(table), "--json", "--html", str(page)]) == 0
    )
    errors = json.loads(capsys.readouterr().out)["data"]["errors"]["memory"]
    assert errors["rows"] == 10
    assert 0 <= errors["median"] <= errors["p90"] < 1
    # of memory, and of the time of a step
    assert page.read_text().count("<circle") == 20


def test_the_same_table_in_gzip_is_read_whatever_its_name(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "rows"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    assert run(["plan", "validate", KIND, str(packed)]) == 0
    assert "10 of 11 rows could be predicted" in capsys.readouterr().out


@pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
def test_what_is_read_is_never_written_over(
    link: str | None, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = table.read_bytes(), table
    if link is not None:
        out = table.with_name("other.csv")
        getattr(out, link)(table)
    assert run(["plan", "predict", str(table), "--kind", KIND, "--out", str(out)]) == 3
    assert "name another file" in capsys.readouterr().err
    assert run(["plan", "validate", KIND, str(table), "--html", str(out)]) == 3
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["validate", "memory", "rows.csv"], 3, "did you mean memory_ci?"),
        (["validate", KIND, "nowhere.csv"], 3, "there is no file"),
        (["validate", KIND, "row.csv"], 3, "did you mean rows.csv? run: ls ."),
        (["validate", KIND, "."], 3, "is a directory"),
        (["validate", KIND, "binary"], 3, "cannot be read as a table"),
        (["validate", KIND, "long.csv"], 3, "more cells than the header"),
        (["validate", KIND, "twice.csv"], 3, "has a column 'a' twice"),
        (["validate", KIND, "nothing.csv"], 3, "is empty"),
        (["validate", KIND, "other.csv"], 3, "corral plan predict --help"),
        (
            ["predict", "rows.csv", "--kind", KIND, "--out", "no/such/out.csv"],
            3,
            "no directory",
        ),
        (["predict", "rows.csv", "--kind", KIND], 2, "--out"),
    ],
)
def test_what_is_no_table_is_refused(
    words: list[str],
    code: int,
    said: str,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(table.parent)
    Path("binary").write_bytes(b"\xff\xfe\x00\x81")
    Path("twice.csv").write_text("a, a\n1,2\n")
    Path("nothing.csv").write_text("")
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("long.csv").write_text("a,b\n1,2,3\n")
    assert run(["plan", *words]) == code
    assert said in capsys.readouterr().err


def test_a_table_without_rows_has_no_errors(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    head = (*NEEDED[KIND], MEASURED[KIND][0])
    empty.write_text(",".join(head) + "\n")
    assert run(["plan", "validate", KIND, str(empty)]) == 0
    assert predicted(empty, tmp_path / "out.csv") == []
    made = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert set(head) < set(made)


SMALLEST = {
    "collectives": ["all_reduce", "h100", "8", "1e9"],
    "inference": ["llama-3.1-8b", "h100", "1", "8", "1000", "200"],
    "training": ["llama-3.1-8b", "h100", "64", "8192"],
    "memory_ci": ["gpt", "h100", "12", "1024", "16", "2048", "2", "64"],
}


@pytest.mark.parametrize("kind", SMALLEST)
def test_the_columns_that_a_kind_needs_are_enough_and_none_of_them_can_be_left_out(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "out.csv"
    words = ["plan", "predict", str(table), "--kind", kind, "--out", str(out)]
    cells = dict(zip(NEEDED[kind], SMALLEST[kind], strict=True))
    table.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    assert run(words) == 0
    assert "1 of 1 row predicted" in capsys.readouterr().out
    for name in cells:
        fewer = {column: cell for column, cell in cells.items() if column != name}
        table.write_text(",".join(fewer) + "\n" + ",".join(fewer.values()) + "\n")
        assert run(words) == 3
        assert f"this table lacks {name}\n" in capsys.readouterr().err


@pytest.mark.parametrize("kind", NEEDED)
@pytest.mark.parametrize("other", NEEDED)
def test_a_table_of_another_kind_is_told_whose_it_is(
    kind: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "validate", other, str(DATA / f"{kind}.csv.gz")]
    if kind != other:
        assert run(words) == 3
        assert (
            f"its columns are those of the kind {kind}: use this kind"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize("kind", NEEDED)
def test_a_table_in_which_nothing_was_measured_is_not_held_against(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text(",".join(NEEDED[kind]) + "\n")
    assert run(["plan", "validate", kind, str(table)]) == 3
    assert "the table contains no measured values" in capsys.readouterr().err


@pytest.mark.parametrize("kind", NEEDED)
def test_help_names_the_columns_of_each_kind(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command, columns in (("predict", NEEDED), ("validate", MEASURED)):
        assert run(["plan", command, "--help"]) == 0
        assert f"{kind}: {', '.join(columns[kind])}\n" in capsys.readouterr().out
