"""Faults of nodes as text, and the command for all suspects."""

from typing import TYPE_CHECKING

from corral.cli.error_output import Usage
from corral.cli.head_options import Change
from corral.cli.printing import print_json, say, show_table, table
from corral.domain.time_point import moment_text

if TYPE_CHECKING:
    from corral.wire import api


def health_text(node: "api.NodeView") -> str:
    """Return the worst fault of the node; "" if it has no fault."""
    return f"suspect: {node.health}" if node.suspect else node.health


def show_ailments(ailments: "list[api.NodeAilment]") -> None:
    if not ailments:
        return
    rows = table("AILMENT", "TIMES", "SINCE", "REMEDY", "NODE IS", right=("TIMES",))
    for ailment in ailments:
        bar = (
            "mended"
            if ailment.mended_at is not None
            else "excused"
            if ailment.excused
            else ailment.bar
        )
        rows.add_row(
            ailment.text,
            str(ailment.count),
            moment_text(ailment.since),
            ailment.remedy,
            bar,
        )
    say()
    show_table(rows)
    for line in dict.fromkeys(
        ailment.to_mend for ailment in ailments if ailment.to_mend
    ):
        say(f"to mend it: {line}")


def cordon_suspects(nodes: tuple[str, ...], common: Change) -> int:
    """Cordon the nodes that the head names. Returns: the exit code. Raises: Usage,
    Conflict."""
    from corral.domain.errors import Conflict

    if nodes:
        raise Usage(
            f"--suspects are all suspects, and {', '.join(nodes)} named besides",
            hint="corral node cordon --suspects, or: corral node cordon NODE",
        )
    with common.client() as client:
        suspects = [node.id for node in client.nodes() if node.suspect]
        if not suspects:
            print_json({"nodes": []}) if common.json else say("no node is a suspect")
            return 0
        if not common.agreed(f"cordon {len(suspects)} suspects?"):
            raise Conflict("nothing was changed")
        changed = client.cordon_suspects()
    if common.json:
        print_json({"nodes": [node.model_dump(mode="json") for node in changed]})
        return 0
    for node in changed:
        say(f"{node.id}: {'draining' if node.draining else 'cordoned'}; {node.health}")
    return 0
