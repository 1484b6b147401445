"""The format of all numbers in the catalog: one line for each, with its unit, source
and date."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

from corral.domain.errors import Bug, NotFound

COLUMNS: Final = ("subject", "quantity", "value", "unit", "source", "date")
TEXT: Final = "text"  # the unit of what is a word and no number


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of a catalog table: the value of one quantity of a subject, as a source
    states it. `date`: date of the source, or the date on which the source was read."""

    subject: str
    quantity: str
    value: str
    unit: str
    source: str
    date: date

    @property
    def number(self) -> float:
        """Return the value as a number. Raises: ValueError if the value is a word."""
        return float(self.value)


Facts = Mapping[str, Mapping[str, Fact]]  # by subject, then by quantity


def read_facts(lines: Iterable[str]) -> tuple[Fact, ...]:
    """Return the facts of a CSV table. A line that begins with # is a comment.

    Raises: ValueError, with the line, if a line is not valid.
    """
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    if (head := tuple(next(rows, ()))) != COLUMNS:
        raise ValueError(
            f"the columns must be {', '.join(COLUMNS)}, not {', '.join(head)[:80]}"
        )
    return tuple(_fact_from_row(row) for row in rows if row)


def _fact_from_row(row: Sequence[str]) -> Fact:
    if len(row) != len(COLUMNS) or not all(cell.strip() for cell in row):
        raise ValueError(
            f"a line lacks a value for one of {', '.join(COLUMNS)}: {','.join(row)}"
        )
    subject, quantity, value, unit, source, day = (cell.strip() for cell in row)
    if unit != TEXT and not _is_number(value):
        raise ValueError(f"{quantity} of {subject} is {value!r}, not a number")
    return Fact(
        subject=subject,
        quantity=quantity,
        value=value,
        unit=unit,
        source=source,
        date=date.fromisoformat(day),
    )


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


@cache
def table(name: str) -> Facts:
    """Return the facts of catalog/data/NAME.csv, a file of the package. Each file is
    read once.

    Raises: Bug if the file is not valid.
    """
    text = (
        files(__package__).joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    )
    try:
        return by_subject(read_facts(text.splitlines()))
    except ValueError as error:
        raise Bug(f"catalog/data/{name}.csv: {error}") from error


def by_subject(facts: Iterable[Fact]) -> Facts:
    """Return the facts grouped by subject and quantity. Raises: ValueError if a
    quantity is given twice."""
    facts_by_subject: dict[str, dict[str, Fact]] = {}
    for fact in facts:
        own_facts = facts_by_subject.setdefault(fact.subject, {})
        if fact.quantity in own_facts:
            raise ValueError(f"{fact.quantity} of {fact.subject} is given twice")
        own_facts[fact.quantity] = fact
    return facts_by_subject


def tables() -> tuple[str, ...]:
    """Return the names of all tables of the package."""
    return tuple(
        sorted(
            path.name.removesuffix(".csv")
            for path in files(__package__).joinpath("data").iterdir()
            if path.name.endswith(".csv")
        )
    )


def plain(name: str) -> str:
    """Return a name without the parts that differ between writers: case, spaces, dashes
    and underscores."""
    return "".join(letter for letter in name.lower() if letter not in " -_")


def subject(
    kind: str,
    name: str,
    known: Facts,
    aliases: Mapping[str, str],
    spelled: Callable[[str], str] = plain,
    *,
    listed: str,
) -> Mapping[str, Fact]:
    """Return the facts of one subject in `known`, found by its name or one of its
    aliases. Two names match if `spelled` returns the same text for both. `listed`: the
    KIND in `corral plan catalog KIND`, which the error names because it lists all
    subjects.

    Raises: NotFound, with the nearest name.
    """
    search_key = spelled(name)
    for known_subject in known:
        if spelled(known_subject) == search_key:
            return known[known_subject]
    for alias, known_subject in aliases.items():
        if spelled(alias) == search_key:
            return known[known_subject]
    raise NotFound(kind, name, [*known, *aliases], see=f"corral plan catalog {listed}")
