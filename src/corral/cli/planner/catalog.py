"""The command plan catalog: the numbers that the planner knows, each with its source."""

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.printing import print_json, say, show_table, table
from corral.domain.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from corral.catalog.facts import Fact

_JSON = Parameter(
    name="--json", negative="", show_default=False, help="Answer in JSON."
)
TABLES: Final = {"gpus": "devices"}  # the others have the name of their file


def catalog(
    kind: str | None = None,
    name: str | None = None,
    /,
    *,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Show the planner's numbers with unit, source and date.

    Args:
        kind: Kind of entry: gpus, links, models, prices, ... (default: list all kinds).
        name: Name of one entry (default: list all names).
    """
    from corral.catalog.facts import subject, tables
    from corral.catalog.facts import table as facts_of

    if kind is None:
        kinds = {
            _table_display_name(file_name): len(facts_of(file_name))
            for file_name in tables()
        }
        if json:
            print_json({"kinds": kinds})
        else:
            _show_counts(kinds)
        return
    facts_by_subject = facts_of(_table_file_name(kind, tables()))
    if name is None:
        if json:
            print_json({kind: sorted(facts_by_subject)})
        else:
            for known_subject in facts_by_subject:
                say(known_subject)
        return
    kind_label = "GPU" if kind == "gpus" else kind.removesuffix("s")
    facts = subject(
        kind_label, name, facts_by_subject, *_name_aliases(kind), listed=kind
    )
    if json:
        print_json({"facts": [_fact_fields(fact) for fact in facts.values()]})
    else:
        _show_facts(facts)


def _table_display_name(file: str) -> str:
    return next(
        (
            display_name
            for display_name, file_name in TABLES.items()
            if file_name == file
        ),
        file,
    )


def _table_file_name(kind: str, files: "tuple[str, ...]") -> str:
    """Return the name of the table file for a kind of entry. Raises: NotFound if there
    is no such kind."""
    file = TABLES.get(kind, kind)
    if file not in files:
        raise NotFound(
            "kind of catalog entry",
            kind,
            [_table_display_name(file_name) for file_name in files],
            see="corral plan catalog",
        )
    return file


def _name_aliases(kind: str) -> "tuple[dict[str, str], Callable[[str], str]]":
    """Return the aliases of the catalog entries of that kind, and a function that
    returns the same text for all spellings of one name."""
    from corral.catalog import carbon, devices, facts, model_names

    if kind == "gpus":
        return devices.aliases(), devices.spelled
    if kind == "models":
        return model_names.aliases(), model_names.spelled
    return (carbon.region_aliases() if kind == "carbon" else {}), facts.plain


def _fact_fields(fact: "Fact") -> dict[str, str]:
    return {
        "subject": fact.subject,
        "quantity": fact.quantity,
        "value": fact.value,
        "unit": fact.unit,
        "source": fact.source,
        "date": fact.date.isoformat(),
    }


def _show_counts(kinds: dict[str, int]) -> None:
    count_table = table("kind", "entries", right=("entries",))
    for kind, count in kinds.items():
        count_table.add_row(kind, str(count))
    show_table(count_table)


def _show_facts(facts: "Mapping[str, Fact]") -> None:
    fact_table = table("quantity", "value", "unit", "date", "source", right=("value",))
    for fact in facts.values():
        if fact.quantity == "aliases":  # as long as a table is wide
            continue
        unit = "" if fact.unit == "text" else fact.unit
        fact_table.add_row(
            fact.quantity, fact.value, unit, fact.date.isoformat(), fact.source
        )
    show_table(fact_table)
    if "aliases" in facts:
        say(f"other names: {', '.join(facts['aliases'].value.split(';'))}")
