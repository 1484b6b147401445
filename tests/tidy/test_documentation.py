"""Pages of the documentation link to what exists, can all be reached, and are narrow
enough."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 100
PAGES = sorted(
    path
    for folder in (".", "docs", "deploy", "examples")
    for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(
    r"(?<![\w/.:-])(?:docs|benchmarks|tests|src|deploy|examples)/[\w./-]+\.(?:md|py|json|ya?ml)\b"
)
# Fragments of paths that stand for many files, and results that later ones replaced.
NO_FILE = re.compile(r"TYPE-DATE|benchmarks/results/(images|log_reading)-2026-11-23")


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Return (target, anchor) of each link to another place of the checkout."""
    for link in LINK.findall(page.read_text()):
        target, _, anchor = link.partition("#")
        if "://" not in target and not target.startswith("mailto:"):
            yield target, anchor


def anchors(page: Path) -> set[str]:
    """Return the names of headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_links_lead_to_files_and_headings() -> None:
    broken = []
    for page in PAGES:
        for target, anchor in links(page):
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert broken == []


def test_paths_in_the_text_exist() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in PATH.findall(page.read_text())
        if not (ROOT / path).exists() and not NO_FILE.search(path)
    ]
    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    left = [ROOT / "docs/index.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        left += [
            (page.parent / target).resolve() for target, _ in links(page) if target
        ]
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    parts = {page for page in pages if page.parent.name == "parts"}
    assert sorted(pages - parts - seen) == []


def test_prose_is_at_most_a_hundred_characters_wide() -> None:
    wide = []
    for page in PAGES:
        text = page.read_text()
        if text.startswith("<!-- Written by"):
            continue
        prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
        wide += [
            f"{page.relative_to(ROOT)}: {line[:60]}"
            for line in prose.splitlines()
            if len(line) > WIDTH and not re.match(r"\s*(\||!?\[)", line)
        ]
    assert wide == []
