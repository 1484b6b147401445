"""Output of the results of active checks, as tables and text."""

from typing import TYPE_CHECKING, Final

from corral.cli.printing import age_text, say, show_table, state, table
from corral.domain.units import counted, size_text

if TYPE_CHECKING:
    from rich.text import Text

    from corral.wire import api

# begins the unit of what is the same where the same is seen
LISTING: Final = "listing "
# as the states of jobs are coloured
_WORDS: Final = {"passed": "DONE", "failed": "FAILED"}


def show_checks(found: "api.Checkup") -> None:
    """Print one line for each check result."""
    rows = table(
        "NODE", "CHECK", "WHERE", "MEASURED", "EXPECTED", "VERDICT", "WHAT", right=RIGHT
    )
    for node in found.nodes:
        for result in node.results:
            rows.add_row(node.node, *_result_cells(result))
    if any(node.results for node in found.nodes):
        show_table(rows)


RIGHT: Final = ("MEASURED", "EXPECTED")


def show_kept(results: "list[api.CheckResult]", now: float) -> None:
    """Print the results of the node's last check."""
    if not results:
        return
    rows = table(
        "CHECK", "WHERE", "MEASURED", "EXPECTED", "VERDICT", "AGE", "WHAT", right=RIGHT
    )
    for result in results:
        *cells, text = _result_cells(result)
        rows.add_row(*cells, age_text(now - result.at), text)
    say()
    show_table(rows)


def _result_cells(one: "api.CheckResult") -> "tuple[str | Text, ...]":
    device_text = f"GPU {one.gpu}" if one.gpu is not None else one.device
    return (
        one.kind,
        device_text,
        amount(one.value, one.unit),
        amount(one.expected, one.unit),
        _styled_verdict(one.result),
        one.text,
    )


def _styled_verdict(result: str) -> "Text":
    from rich.text import Text

    return Text(result, style=state(_WORDS[result]).style if result in _WORDS else "")


def amount(value: float | None, unit: str) -> str:
    """Return a measured value with its unit, for example: 3.01 TB/s, 12 ms, 2,000
    files."""
    if value is None:
        return ""
    if unit.startswith(LISTING):
        return counted(round(value), "file")
    if unit.startswith("B/s"):
        return f"{size_text(int(value))}/s"
    return f"{abs(value) * 1e3:.0f} ms" if unit == "s" else f"{value:g} {unit}".strip()


def show_sameness(found: "api.Checkup") -> None:
    """Print whether all nodes see the same files in the checked directory."""
    nodes_by_listing: dict[str, list[str]] = {}
    for node in found.nodes:
        for result in node.results:
            if result.unit.startswith(LISTING):
                nodes_by_listing.setdefault(result.unit, []).append(node.node)
    if len(nodes_by_listing) > 1:
        groups_by_size = sorted(nodes_by_listing.values(), key=len, reverse=True)
        groups_text = "; ".join(
            ", ".join(nodes[:5]) + (" ..." * (len(nodes) > 5))
            for nodes in groups_by_size
        )
        say(f"the nodes see different files in this directory: {groups_text}")
    elif nodes_by_listing and not sees_files(found):
        say(
            "the directory has no files on any of the checked nodes; if it should have "
            "some, mount it there, then run the command again"
        )
    elif nodes_by_listing and len(found.nodes) > 1:
        say(
            f"all {len(next(iter(nodes_by_listing.values())))} nodes see the same files"
        )


def sees_files(found: "api.Checkup") -> bool:
    """Return whether any node sees files in the checked directory."""
    return any(
        bool(result.value)
        for node in found.nodes
        for result in node.results
        if result.unit.startswith(LISTING)
    )


def sees_other(found: "api.Checkup") -> bool:
    listings = {result.unit for node in found.nodes for result in node.results}
    return len([unit for unit in listings if unit.startswith(LISTING)]) > 1


def failed_of(found: "api.Checkup") -> bool:
    """Return True if any check failed or nodes see different files."""
    bad = any(
        result.result == "failed" for node in found.nodes for result in node.results
    )
    return bad or sees_other(found)
