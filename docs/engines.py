"""Writes docs/reference/engines.md from a run of the engines' contract: `make engines`. With names
of engines only those are run, and their columns written.

Every engine makes the same statements true, each with its real component; the page tells what was
seen: yes, or why not.
"""

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parent.parent
SUITE: Final = ROOT / "tests" / "contracts" / "engines"
PAGE: Final = ROOT / "docs" / "reference" / "engines.md"
HEADER: Final = (
    "<!-- Written by docs/engines.py from a run of tests/contracts/engines: `make engines`. -->\n\n"
    "# What each engine honours\n\n"
    "One contract, run against each engine's real component. A number tells why not, below.\n"
)
YES: Final = "yes"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one engine did with one statement. `why` "": it honours it."""

    function: str
    engine: str
    why: str


def statements() -> dict[str, list[str]]:
    """The functions of each file of the suite, under what the file says of itself."""
    found: dict[str, list[str]] = {}
    for file in sorted(SUITE.glob("test_*.py")):
        tree = ast.parse(file.read_text())
        about = (ast.get_docstring(tree) or file.stem).splitlines()[0]
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        found[about] = [name for name in names if name.startswith("test_")]
    return found


def sentence(function: str) -> str:
    """`test_a_gang_starts_whole`: a gang starts whole."""
    return function.removeprefix("test_").replace("_", " ")


def outcomes(report: Path) -> list[Outcome]:
    """What a run has written as JUnit's XML; a statement with several cases has several.

    Raises: SystemExit when a case has failed: then there is nothing to tell yet.
    """
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name, _, parameters = case.attrib["name"].partition("[")
        engine = parameters.rstrip("]").split("-")[0]
        if case.find("failure") is not None or case.find("error") is not None:
            raise SystemExit(
                f"{case.attrib['name']} has failed: the page stays as it is"
            )
        skipped = case.find("skipped")
        why = "" if skipped is None else skipped.attrib.get("message", "not tried here")
        found.append(Outcome(name, engine, why.removeprefix(f"{engine}: ")))
    return found


def page(groups: Mapping[str, Iterable[str]], seen: Iterable[Outcome]) -> str:
    """The table of what was seen, and below it each reason once."""
    engines = list(dict.fromkeys(one.engine for one in seen))
    by_cell: dict[tuple[str, str], str] = {}
    for one in seen:
        by_cell[one.function, one.engine] = (
            by_cell.get((one.function, one.engine), "") or one.why
        )
    reasons: dict[str, int] = {}
    lines = [HEADER]
    for about, functions in groups.items():
        lines += [f"## {about.rstrip('.')}", "", f"| | {' | '.join(engines)} |"]
        lines.append("| --- |" + " --- |" * len(engines))
        for function in functions:
            cells = [
                _cell(by_cell.get((function, engine)), reasons) for engine in engines
            ]
            lines.append(f"| {sentence(function)} | {' | '.join(cells)} |")
        lines.append("")
    if reasons:
        lines += ["## Why not", ""]
        lines += [f"{number}. {why}" for why, number in reasons.items()] + [""]
    return "\n".join(lines)


def _cell(why: str | None, reasons: dict[str, int]) -> str:
    if why is None:
        return ""
    return f"no ({reasons.setdefault(why, len(reasons) + 1)})" if why else YES


def told(text: str, groups: Mapping[str, Iterable[str]]) -> list[Outcome]:
    """What the page tells already."""
    functions = {sentence(name): name for names in groups.values() for name in names}
    reasons = dict(re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE))
    found: list[Outcome] = []
    engines: list[str] = []
    for line in text.splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| |"):
            engines = cells
        elif first in functions:
            for engine, cell in zip(engines, cells, strict=True):
                number = re.search(r"\d+", cell)
                why = reasons[number[0]] if number else ""
                found += [Outcome(functions[first], engine, why)] if cell else []
    return found


def renewed(known: Iterable[Outcome], fresh: Iterable[Outcome]) -> list[Outcome]:
    """Return `known` with the engines of `fresh` replaced, each in the column that it had."""
    known, fresh = list(known), list(fresh)
    columns = list(dict.fromkeys(one.engine for one in [*known, *fresh]))
    run = {one.engine for one in fresh}
    found = [*(one for one in known if one.engine not in run), *fresh]
    return sorted(found, key=lambda one: columns.index(one.engine))


def main() -> None:
    asked = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [
            "pytest",
            str(SUITE),
            f"--junit-xml={report}",
            "-o",
            "junit_family=xunit2",
        ]
        words += [f"--engine={name}" for name in asked]
        code = subprocess.run([sys.executable, "-m", *words], cwd=ROOT).returncode
        if not report.exists():
            sys.exit(code)
        known = told(PAGE.read_text(), statements()) if asked else []
        PAGE.write_text(page(statements(), renewed(known, outcomes(report))))


if __name__ == "__main__":
    main()
