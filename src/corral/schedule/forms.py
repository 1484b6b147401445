"""The forms that gangs may take, as columns: what each asks for, and which other would do too."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from corral.schedule.cluster import WHOLE, Cluster, share_millis
from corral.schedule.compiled import column, compiled
from corral.schedule.seat import REQUIRE, Ask

NO_FORM: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRow:
    """`rest`: GPUs on one more node than the ask has, fewer than on the others; 0: no such node.

    `other`: the row of the form that would do as well, or NO_FORM.
    """

    ask: Ask
    rest: int = 0
    other: int = NO_FORM


class Forms(NamedTuple):
    """Columns of forms; the first nine are those of an Ask."""

    nodes: Any
    gpus: Any
    share: Any
    cpu: Any
    memory: Any
    group: Any
    alone: Any
    topology: Any
    level: Any
    rest: Any
    other: Any


def forms_of(rows: Sequence[FormRow]) -> Forms:
    """The rows as columns. Raises: ValueError when a row's rest cannot be."""
    size = len(rows)
    forms = Forms(
        **{name: column(size, "int") for name in Ask._fields if name != "alone"},
        alone=column(size, "bool", False),
        rest=column(size, "int"),
        other=column(size, "int", NO_FORM),
    )
    for at, row in enumerate(rows):
        put_form(forms, at, row)
    return forms


def put_form(forms: Forms, at: int, row: FormRow) -> None:
    """Write one row. Raises: ValueError when the rest is not smaller than the others, or may lie
    outside of the domain that the others must share."""
    if row.rest and not 0 < row.rest < row.ask.gpus:
        raise ValueError(f"a rest of {row.rest} GPUs beside nodes of {row.ask.gpus}")
    if row.rest and row.ask.topology == REQUIRE:
        raise ValueError("a gang that must lie in one domain asks the same of all its nodes")
    for name, value in zip(Ask._fields, row.ask, strict=True):
        getattr(forms, name)[at] = value
    forms.rest[at], forms.other[at] = row.rest, row.other


@compiled
def ask_of(forms: Forms, form: int, is_rest: bool) -> Ask:
    """What the form asks for: of its equal nodes, or of its one smaller node."""
    return Ask(
        1 if is_rest else forms.nodes[form],
        forms.rest[form] if is_rest else forms.gpus[form],
        0 if is_rest else forms.share[form],
        forms.cpu[form],
        forms.memory[form],
        forms.group[form],
        forms.alone[form],
        forms.topology[form],
        forms.level[form],
    )


@compiled
def nodes_of(forms: Forms, form: int) -> int:
    """On how many nodes a gang of the form lies."""
    return int(forms.nodes[form] + 1 * (forms.rest[form] > 0))


@compiled
def millis_of(forms: Forms, form: int) -> int:
    """Thousandths of GPUs of the whole gang, as asked for."""
    each = forms.gpus[form] * WHOLE + forms.share[form]
    return int(forms.nodes[form] * each + forms.rest[form] * WHOLE)


@compiled
def part_millis(cluster: Cluster, forms: Forms, form: int, node: int) -> int:
    """Thousandths that the form takes of each GPU that it has on the node."""
    if forms.share[form] == 0:
        return WHOLE
    return int(share_millis(forms.share[form], cluster.slices[node]))
