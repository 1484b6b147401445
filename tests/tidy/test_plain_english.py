"""Plain English: words that puzzle readers, variables without a noun, subjects of
commits."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "corral"
# released migrations never change
RELEASED = SOURCE / "store" / "migrations" / "versions"
PUZZLING = re.compile(
    r"\b(told|tells|telling|whom|anew|nobody|somebody|heard|said|beside|thereof|in vain"
    r"|gives? way|is none|so many|so long|so often)\b"
)
NO_NOUNS = frozenset(
    [
        "one",
        "found",
        "told",
        "said",
        "kept",
        "held",
        "known",
        "asked",
        "left",
        "own",
        "there",
        "mine",
        "theirs",
        "given",
        "meant",
    ]
)
# Left: names of files and fields in stored rows, the account `nobody`, and fields of
# dataclasses.
MOST_PUZZLING = 40
MOST_WITHOUT_NOUN = 90
MOST_OF_A_SUBJECT = 72


def sources() -> Iterator[Path]:
    return (path for path in sorted(SOURCE.rglob("*.py")) if path.parent != RELEASED)


def test_few_words_puzzle_a_reader() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{token.start[0]} {match[0]}"
        for path in sources()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type in (tokenize.COMMENT, tokenize.STRING)
        for match in PUZZLING.finditer(token.string)
    ]
    assert len(places) <= MOST_PUZZLING, "\n".join(places)


def test_variables_are_nouns() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.id}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in NO_NOUNS
    ]
    assert len(places) <= MOST_WITHOUT_NOUN, "\n".join(places)


def test_subjects_of_commits_are_short() -> None:
    git = ("git", "-C", str(ROOT), "log", "-200", "--no-merges", "--format=%s")
    log = subprocess.run(git, capture_output=True, text=True, check=False)
    if log.returncode:
        pytest.skip("not a checkout of git")
    long = [
        subject
        for subject in log.stdout.splitlines()
        if len(subject) > MOST_OF_A_SUBJECT
    ]
    assert not long, long
