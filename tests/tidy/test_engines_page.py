"""docs/reference/engines.md tells of every statement of the engines' contract, as a run
has found it."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def engines() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "engines_page", ROOT / "docs" / "engines.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_a_row_for_each_statement_and_no_other() -> None:
    made = engines()
    rows = [
        line.split("|")[1].strip()
        for line in made.PAGE.read_text().splitlines()
        if "|" in line
    ]
    told = [row for row in rows if row and set(row) != {"-"}]
    wanted = [
        made.sentence(name) for names in made.statements().values() for name in names
    ]
    assert told == wanted, "run: make engines"


def test_what_the_page_tells_is_read_back() -> None:
    made = engines()
    groups = {"About.": ["test_a", "test_b"]}
    seen = [made.Outcome("test_a", "x", ""), made.Outcome("test_b", "x", "no root")]
    seen += [
        made.Outcome("test_a", "y", "no root"),
        made.Outcome("test_b", "y", "no time"),
    ]
    text = made.page(groups, seen)
    assert sorted(map(str, made.told(text, groups))) == sorted(map(str, seen))
    assert made.page(groups, made.told(text, groups)) == text
    page = made.PAGE.read_text()
    assert made.page(made.statements(), made.told(page, made.statements())) == page


def test_engines_that_were_run_alone_keep_their_columns_and_the_others_stay() -> None:
    made = engines()
    known = [made.Outcome("test_a", name, "") for name in ("x", "y", "z")]
    fresh = [made.Outcome("test_a", name, "no root") for name in ("y", "x")]
    found = made.renewed(known, fresh)
    assert [(one.engine, one.why) for one in found] == [
        ("x", "no root"), ("y", "no root"), ("z", ""),
    ]  # fmt: skip


def test_a_reason_is_told_once() -> None:
    made = engines()
    seen = [made.Outcome("test_a", "x", ""), made.Outcome("test_a", "y", "no root")]
    seen += [made.Outcome("test_b", "x", "no root"), made.Outcome("test_b", "y", "")]
    text = made.page({"About.": ["test_a", "test_b"]}, seen)
    assert "| a | yes | no (1) |" in text
    assert "| b | no (1) | yes |" in text
    assert text.count("no root") == 1
