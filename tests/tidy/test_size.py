"""Small files, small functions. A listed exception may only shrink, and goes when it is
small."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FUNCTION_LINES = 60
LONGER: dict[str, int] = {}  # path -> lines it may have, while it is being split


@pytest.mark.parametrize(
    "path", [*SOURCES, *TESTS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_file_is_small_and_so_are_its_functions(path: Path) -> None:
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    limit = 600 if path in TESTS else 500
    lines = text.count("\n")
    assert lines <= LONGER.get(name, limit), f"{name} has {lines} lines; split it"
    assert name not in LONGER or lines > limit, (
        f"{name} is small now: take it off the list"
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, (
                f"{name}:{node.lineno} {node.name}: {length} lines"
            )
