"""Names: a public class has one of its own, and a module that a text names is there."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "corral"
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
# Calls of the API that pages show as `client.outputs(job)`, methods of ports, files of
# users.
NO_MODULES = {
    "boot.log",
    "client.fetch",
    "client.outputs",
    "control.submit",
    "plan.json",
    "store.lead",
    "train.py",
}


def test_no_two_public_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_modules_that_texts_name_are_there() -> None:
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("**/*.md"),
        *SOURCE.rglob("*.py"),
    ]
    gone = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in pages
        for name in _named(path.read_text())
        if name not in NO_MODULES and not _is_there(name)
    }
    assert gone == set()


def _named(text: str) -> Iterator[str]:
    """Names such as reconcile.changeset in backticks, and paths such as
    wire/node.py."""
    rooms = "|".join(ROOMS)
    yield from re.findall(rf"`((?:{rooms})\.[a-z_0-9]+)", text)
    for path in re.findall(
        rf"(?<![\w/.-])(?:corral/)?((?:{rooms})/[a-z_0-9/]+)\.py", text
    ):
        yield path.replace("/", ".")


def _is_there(name: str) -> bool:
    place = SOURCE.joinpath(*name.split("."))
    room = (place.parent / "__init__.py").read_text() if place.parent.is_dir() else ""
    attribute = re.search(rf"\b{place.name}\b", room) is not None
    test = ROOT.joinpath("tests", *name.split(".")).with_suffix(".py")
    return (
        place.is_dir()
        or place.with_suffix(".py").is_file()
        or attribute
        or test.is_file()
    )


def test_docstrings_open_with_a_verb_or_a_noun_phrase() -> None:
    """At most one in a hundred opens with a clause or a preposition (style: plain
    English)."""
    clause = re.compile(
        r"(what|of|how|where|who|those|by|as|from|when|which|why|whom|that|on|to|since)\b",
        re.I,
    )
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        (f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)}", text)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    ]
    wrong = [where for where, text in found if clause.match(text)]
    assert len(wrong) <= len(found) // 100, wrong
