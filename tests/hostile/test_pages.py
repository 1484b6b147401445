"""The page of attacks is that of the tables."""

from pathlib import Path

from tests.hostile.pages import text

PAGE = Path(__file__).parents[2] / "docs" / "architecture" / "attacks.md"


def test_the_page_lists_every_attack() -> None:
    assert PAGE.read_text() == text()
