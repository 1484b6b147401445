"""Pages keep up with the house."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_room_is_on_the_architecture_page_and_no_other() -> None:
    rooms = {path.parent.name for path in (ROOT / "src/corral").glob("*/__init__.py")}
    page = (ROOT / "docs/architecture/overview.md").read_text()
    table = page.split("## Processes")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == rooms


def test_every_dependency_has_its_line() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["train"]
    page = (ROOT / "docs/architecture/dependencies.md").read_text().lower()
    assert len(project["dependencies"]) <= 15
    for line in asked:
        name = re.split(r"[\[><= ]", line)[0]
        assert f"| {name.lower()} " in page, (
            f"{name} has no line in docs/architecture/dependencies.md"
        )


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert sorted(set(numbers)) == sorted(numbers)


def test_nothing_is_left_for_later() -> None:
    left = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for path in (ROOT / "src").rglob("*.py"):
        assert not left.search(path.read_text()), f"{path} leaves something for later"


def test_a_share_is_told_in_one_way() -> None:
    """By `units.share_text`, and not by the formatting of strings, which writes 14% for
    14 %."""
    own = re.compile(r":[\d.,]*%\}")
    files = (ROOT / "src").rglob("*.py")
    assert [str(file) for file in files if own.search(file.read_text())] == []
