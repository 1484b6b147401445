"""plan predict and plan validate: whole tables, rows that are refused, files that are none."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from corral.cli.main import run

DATA = Path(__file__).parents[3] / "validation/data"
KIND = "memory_ci"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten rows as they were measured, and one that says too little."""
    with gzip.open(DATA / f"{KIND}.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["layers"] and row["seq_len"]][:10]
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


def test_each_row_is_predicted_or_refused_with_its_reason(table: Path, tmp_path: Path) -> None:
    *rows, last = predicted(table, tmp_path / "out.csv")
    assert len(rows) == 10
    assert all(float(row["pred_memory_gb_per_gpu"]) > 0 and not row["refused"] for row in rows)
    assert last["pred_memory_gb_per_gpu"] == ""
    assert "layers" in last["refused"]


def test_measured_cells_change_no_prediction(table: Path, tmp_path: Path) -> None:
    told = predicted(table, tmp_path / "told.csv")
    bare = tmp_path / "bare.csv"
    with bare.open("w", newline="") as file:
        writer = csv.DictWriter(file, [name for name in told[0] if not name.startswith("pred")])
        writer.writeheader()
        hidden = {"mem_max_allocated_gb": "", "mem_allocated_gb": "", "iter_time_s_median": ""}
        for row in told:
            kept = {name: value for name, value in row.items() if not name.startswith("pred")}
            writer.writerow(kept | hidden)
    column = "pred_memory_gb_per_gpu"
    again = predicted(bare, tmp_path / "again.csv")
    assert [row[column] for row in again] == [row[column] for row in told]


def test_validate_tells_errors_and_draws_them(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run(["plan", "validate", KIND, str(table), "--json", "--html", str(page)]) == 0
    errors = json.loads(capsys.readouterr().out)["data"]["errors"]["memory"]
    assert errors["rows"] == 10
    assert 0 <= errors["median"] <= errors["p90"] < 1
    assert page.read_text().count("<circle") == 10


def test_the_same_table_in_gzip_is_read_whatever_its_name(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "rows"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    assert run(["plan", "validate", KIND, str(packed)]) == 0
    assert "10 of 11 rows could be predicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["validate", "memory", "rows.csv"], 3, "did you mean memory_ci?"),
        (["validate", KIND, "nowhere.csv"], 3, "there is no file"),
        (["validate", KIND, "binary"], 3, "cannot be read as a table"),
        (["validate", KIND, "long.csv"], 3, "more cells than the header"),
        (["predict", "rows.csv", "--kind", KIND, "--out", "no/such/out.csv"], 3, "no directory"),
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
    Path("long.csv").write_text("a,b\n1,2,3\n")
    assert run(["plan", *words]) == code
    assert said in capsys.readouterr().err


def test_a_table_without_rows_has_no_errors(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("layers,hidden\n")
    assert run(["plan", "validate", KIND, str(empty)]) == 0
    assert predicted(empty, tmp_path / "out.csv") == []
