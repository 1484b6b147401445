"""Small files, small functions. A listed exception may only shrink, and goes when it is
small."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FUNCTION_LINES = 60
LONGER: dict[str, int] = {}  # path -> lines it may have, while it is being split


def faults(path: Path) -> Iterator[str]:
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    limit = 600 if path in TESTS else 500
    lines = text.count("\n")
    if lines > LONGER.get(name, limit):
        yield f"{name} has {lines} lines; split it"
    if name in LONGER and lines <= limit:
        yield f"{name} is small now: take it off the list"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno} {node.name}: {length} lines"


@pytest.mark.parametrize("files", [SOURCES, TESTS], ids=["sources", "tests"])
def test_a_file_is_small_and_so_are_its_functions(files: list[Path]) -> None:
    found = [fault for path in files for fault in faults(path)]
    assert not found, "\n".join(found)
