"""Every option that the documentation writes beside a command of Corral exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT)
    for page in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("**/*.md"),
        *(ROOT / "deploy").glob("*.md"),
    )
    if page.name not in ("cli.md", "CHANGELOG.md")
)
SPAN = re.compile(r"`(corral [^`]+)`")
OPTION = re.compile(r"--[a-z][a-z0-9-]*")


def reference() -> dict[str, str]:
    """The section of each command in docs/reference/cli.md, which is generated, by the
    command's words."""
    text = (ROOT / "docs/reference/cli.md").read_text()
    sections = re.split(r"^##+ corral ?", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].strip(): part for part in sections}


def commands(page: str) -> Iterator[str]:
    """Each command in code, without its comment and without what a job runs (after
    --)."""
    for number, block in enumerate(page.split("```")):
        if number % 2:
            lines = block.replace("\\\n", " ").splitlines()
            found = [
                line[line.index("corral ") :] for line in lines if "corral " in line
            ]
        else:
            found = SPAN.findall(block)
        for line in found:
            for command in re.split(r"[;|&]|\s#|\s--\s", line):
                if "corral " in command:
                    yield command[command.index("corral ") :]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_an_option_in_the_documentation_exists(page: Path) -> None:
    sections = reference()
    for command in commands((ROOT / page).read_text()):
        words = command.split()[1:]
        known = [" ".join(words[:count]) for count in (3, 2, 1)]
        section = next((sections[name] for name in known if name in sections), None)
        if section is None:
            continue
        for option in set(OPTION.findall(command)) - {"--help"}:
            assert re.search(rf"{option}\b(?!-)", section), (
                f"{page}: {command}: no {option}"
            )
