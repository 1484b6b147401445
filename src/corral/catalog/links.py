"""Links between GPUs: inside a node or a scale-up domain, and between nodes."""

from dataclasses import dataclass
from functools import cache

from corral.catalog.facts import subject, table


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkKind:
    """One kind of link, from the view of one GPU.

    `bytes_per_s`: rate of one GPU in one direction. `is_switched`: any pair of GPUs has
    the full rate at the same time. `reduces`: the switch itself computes reductions
    (NVLink SHARP, SHARP).
    """

    name: str
    title: str
    bytes_per_s: float
    is_switched: bool
    reduces: bool


@cache
def link(name: str) -> LinkKind:
    """Return the link of that name. Raises: NotFound, with the nearest name."""
    link_rows = table("links")
    facts = subject("link", name, link_rows, {}, listed="links")
    return LinkKind(
        name=next(iter(facts.values())).subject,
        title=facts["title"].value,
        bytes_per_s=facts["bandwidth"].number * 1e9,
        is_switched=facts["switched"].value == "yes",
        reduces=facts["reduces"].value == "yes",
    )


def links() -> tuple[LinkKind, ...]:
    return tuple(link(name) for name in table("links"))
