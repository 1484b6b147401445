"""Text of node faults, and the command that cordons all suspect nodes."""

from typing import TYPE_CHECKING, Final

from corral.cli.error_output import Usage
from corral.cli.head_options import Change, declined
from corral.cli.printing import print_json, say, show_table, table
from corral.domain.time_point import moment_text

if TYPE_CHECKING:
    from corral.wire import api


_RESTRICTION_TEXTS: Final = {
    "open": "in use",
    "avoid": "used last",
    "cordon": "cordoned",
    "drain": "drained",
}


_REMEDY_TEXTS: Final = {
    "ignore": "none needed",
    "restart-app": "restart the job",
    "cordon": "look at the node",
    "drain": "drain the node",
    "reset": "reset the GPU",
    "reboot": "reboot the node",
    "deep-test": "run the vendor's deep test",
    "rma": "replace the part",
}


def health_text(node: "api.NodeView") -> str:
    """Return the worst fault of the node, marked if the node is suspect; "" if it has
    no fault."""
    return f"suspect: {node.health}" if node.suspect else node.health


def show_conditions(conditions: "list[api.NodeConditionView]") -> None:
    if not conditions:
        return
    rows = table("CONDITION", "TIMES", "SINCE", "REMEDY", "NODE IS", right=("TIMES",))
    for condition in conditions:
        restriction = (
            "repaired"
            if condition.mended_at is not None
            else "cleared"
            if condition.excused
            else _RESTRICTION_TEXTS.get(condition.restriction, condition.restriction)
        )
        rows.add_row(
            condition.text,
            str(condition.count),
            moment_text(condition.since),
            _REMEDY_TEXTS.get(condition.remedy, condition.remedy),
            restriction,
        )
    say()
    show_table(rows)
    for line in dict.fromkeys(
        condition.to_mend for condition in conditions if condition.to_mend
    ):
        say(f"to repair it, run: {line}")


def cordon_suspects(nodes: tuple[str, ...], common: Change) -> int:
    """Cordon the nodes that the head lists as suspect. Returns: the exit code. Raises:
    Usage if nodes are named too, Conflict."""
    if nodes:
        raise Usage(
            "--suspects cordons all suspect nodes and cannot be combined with names of "
            f"nodes ({', '.join(nodes)})",
            hint="run: corral node cordon --suspects, or: corral node cordon NODE",
        )
    with common.client() as client:
        suspects = [node.id for node in client.nodes() if node.suspect]
        if not suspects:
            print_json({"nodes": []}) if common.json else say("no node is suspect")
            return 0
        if not common.agreed(f"cordon all suspect nodes ({len(suspects)})?"):
            raise declined()
        changed = client.cordon_suspects()
    if common.json:
        print_json({"nodes": [node.model_dump(mode="json") for node in changed]})
        return 0
    for node in changed:
        say(f"{node.id}: {'draining' if node.draining else 'cordoned'}; {node.health}")
    return 0
