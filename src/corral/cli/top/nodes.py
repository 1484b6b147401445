"""The table of nodes in the live view. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corral.cli.curves.sparkline import BLOCKS, mean
from corral.cli.printing import clean
from corral.cli.top.header import busy_tone, known_share, watts_text
from corral.cli.top.row_order import Order
from corral.cli.top.state import TopState
from corral.cli.top.styled_text import Cell, TextColumn, TextPart
from corral.domain.natural_order import natural

if TYPE_CHECKING:
    from corral.wire import api
    from corral.wire.gpus import GpusOfNode

GPUS_SHOWN: Final = 16  # of a node, in its bar
SIGNS: Final = {
    "lost": TextPart("×", "bad"),
    "silent": TextPart("?", "warn"),
    "taken": TextPart("o", "dim"),
}
FREE: Final = TextPart("·", "dim")
UNKNOWN: Final = TextPart("-", "dim")
COLUMNS: Final = (
    TextColumn("NODE", 8, grows=True, most=24),
    TextColumn("STATE", 8),
    TextColumn("USED", 5, right=True),
    TextColumn("GPUS", 8, grows=True, most=GPUS_SHOWN),
    TextColumn("BUSY", 5, right=True),
    TextColumn("MEM", 5, goes=3, right=True),
    TextColumn("POWER", 8, goes=2, right=True),
    TextColumn("HEAT", 5, goes=4, right=True),
    TextColumn("NOTE", 10, goes=1, grows=True),
)
TROUBLE: Final = {
    "dead": 0,
    "silent": 1,
    "draining": 2,
    "cordoned": 3,
    "closed": 4,
    "alive": 5,
}
TONES: Final = {"dead": "bad", "silent": "bad", "alive": "good"}


@dataclass(frozen=True, slots=True)
class TopNodeRow:
    """A node and the state of its GPUs."""

    node: "api.NodeView"
    gpus: "GpusOfNode | None"

    @property
    def key(self) -> str:
        return self.node.id

    @property
    def state(self) -> str:
        node = self.node
        if node.liveness != "alive":
            return node.liveness
        if node.draining or node.cordoned:
            return "draining" if node.draining else "cordoned"
        return "closed" if node.closed else "alive"

    @property
    def busy(self) -> float | None:
        """Return the mean utilization of the allocated GPUs of the node; None if
        unknown."""
        if self.gpus is None:
            return None
        pairs = zip(self.gpus.utilisation, self.gpus.holders, strict=True)
        return mean([busy for busy, holders in pairs if holders])

    @property
    def memory(self) -> float | None:
        return None if self.gpus is None else mean(self.gpus.memory)

    @property
    def watts(self) -> float | None:
        watt_readings = (
            []
            if self.gpus is None
            else [
                power_watt
                for power_watt in self.gpus.power_watts
                if power_watt is not None
            ]
        )
        return sum(watt_readings) if watt_readings else None

    @property
    def heat(self) -> float | None:
        """Return the temperature of the hottest GPU of the node; None if it is unknown."""
        celsius = [] if self.gpus is None else self.gpus.temperature_celsius
        return max(
            (reading for reading in celsius if reading is not None), default=None
        )

    @property
    def used(self) -> float:
        return self.node.gpus.total - self.node.gpus.free - self.node.gpus.taken

    @property
    def note(self) -> str:
        """Return the node's fault, why it takes no work, or what kind of node it is."""
        node = self.node
        suspect = (
            "suspect: cordon it with: corral node cordon --suspects"
            if node.suspect
            else ""
        )
        liveness_reason = node.why if node.liveness != "alive" else ""
        remarks = [
            remark
            for remark in (suspect, node.health, liveness_reason, node.closed)
            if remark
        ]
        gpu_types_text = ",".join(node.gpus.types) + " (pretend)" * node.gpus.pretend
        labels = " ".join(f"{name}={value}" for name, value in node.labels.items())
        return clean(
            "; ".join(remarks)
            or " ".join(remark for remark in (gpu_types_text, labels) if remark)
        )

    @property
    def words(self) -> str:
        """Return the text that a filter searches."""
        return f"{self.node.id} {self.state} {self.note} {' '.join(self.node.gpus.types)}".lower()


def rows(known: TopState) -> list[TopNodeRow]:
    nodes = known.status.nodes if known.status is not None else []
    return [TopNodeRow(node, known.gpus_of.get(node.id)) for node in nodes]


def cells(row: TopNodeRow) -> Sequence[Cell]:
    total = row.node.gpus.total
    watched = bool(row.node.health or row.node.suspect)
    return (
        [TextPart(row.node.id)],
        [TextPart(row.state, TONES.get(row.state, "warn"))],
        [TextPart(f"{row.used:g}/{total}" if total else "-", "" if total else "dim")],
        heat_bar(row.gpus),
        [TextPart(known_share(row.busy), busy_tone(row.busy))],
        [TextPart(known_share(row.memory))],
        [TextPart(watts_text(row.watts))],
        [TextPart("-" if row.heat is None else f"{row.heat:.0f} C")],
        [TextPart(row.note, "warn" if watched or row.state != "alive" else "dim")],
    )


def heat_bar(gpus: "GpusOfNode | None") -> list[TextPart]:
    """Return one mark for each GPU. The height of the mark shows how busy a held GPU
    is; a dot is a free GPU."""
    if gpus is None:
        return []
    marks = [
        mark(busy, held=bool(holders), sign=sign)
        for busy, holders, sign in zip(
            gpus.utilisation, gpus.holders, gpus.signs, strict=True
        )
    ]
    return marks[:GPUS_SHOWN]


def mark(busy: float | None, *, held: bool, sign: str) -> TextPart:
    if sign in SIGNS:
        return SIGNS[sign]
    if not held:
        return FREE
    if busy is None:
        return UNKNOWN
    return TextPart(
        BLOCKS[min(len(BLOCKS) - 1, int(busy * len(BLOCKS)))], busy_tone(busy)
    )


ORDERS: Final[Mapping[str, Order[TopNodeRow]]] = {
    "name": Order("NODE", lambda row: natural(row.node.id)),
    "trouble": Order(
        "STATE",
        lambda row: (not row.node.suspect, not row.node.health, TROUBLE[row.state]),
    ),
    "used": Order("USED", lambda row: row.used, down=True),
    "busy": Order("BUSY", lambda row: row.busy, down=True),
    "memory": Order("MEM", lambda row: row.memory, down=True),
    "power": Order("POWER", lambda row: row.watts, down=True),
    "heat": Order("HEAT", lambda row: row.heat, down=True),
}
