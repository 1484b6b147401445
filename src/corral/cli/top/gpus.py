"""The table of GPUs in the live view. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.cli.printing import clean
from corral.cli.top.header import busy_tone, known_share
from corral.cli.top.row_order import Order
from corral.cli.top.state import TopState
from corral.cli.top.styled_text import Cell, TextColumn, TextPart, bar
from corral.domain.natural_order import natural

BAR: Final = 10
COLUMNS: Final = (
    TextColumn("NODE", 8, grows=True, most=24),
    TextColumn("GPU", 3, right=True),
    TextColumn("TYPE", 6, goes=5),
    TextColumn("USE", BAR, goes=4, grows=True, most=24),
    TextColumn("BUSY", 5, right=True),
    TextColumn("MEM", 5, goes=2, right=True),
    TextColumn("POWER", 6, goes=1, right=True),
    TextColumn("HEAT", 5, goes=3, right=True),
    TextColumn("JOB", 16, grows=True, most=48),
    TextColumn("USER", 8, goes=6),
)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU. `holders`: ids of the jobs on the GPU; `job`: the name of the first of
    these jobs; `user`: the owner of this job."""

    node: str
    index: int
    type: str
    busy: float | None
    memory: float | None
    watts: float | None
    heat: float | None
    holders: str
    sign: str
    job: str
    user: str

    @property
    def key(self) -> str:
        return f"{self.node}:{self.index}"

    @property
    def words(self) -> str:
        state = self.sign or ("held" if self.holders else "free")
        return f"{self.key} {self.type} {self.job} {self.holders} {self.user} {state}".lower()


def rows(known: TopState) -> list[GpuRow]:
    if known.gpus is None:
        return []
    nodes = known.status.nodes if known.status is not None else []
    types = {
        node.id: ",".join(node.gpus.types) + " (pretend)" * node.gpus.pretend
        for node in nodes
    }
    gpu_rows = []
    for node in known.gpus.nodes:
        kind = types.get(node.node, "")
        for index, busy, memory, watts, heat, holders, sign in zip(
            node.index,
            node.utilisation,
            node.memory,
            node.power_watts,
            node.temperature_celsius,
            node.holders,
            node.signs,
            strict=True,
        ):
            job = known.job_of.get(holders.partition(",")[0])
            name, user = (job.name, job.owner) if job is not None else ("", "")
            gpu_rows.append(
                GpuRow(
                    node.node,
                    index,
                    kind,
                    busy,
                    memory,
                    watts,
                    heat,
                    holders,
                    sign,
                    name,
                    user,
                )
            )
    return gpu_rows


def cells(row: GpuRow) -> Sequence[Cell]:
    tone = busy_tone(row.busy) if row.holders else "dim"
    return (
        [TextPart(row.node)],
        [TextPart(str(row.index))],
        [TextPart(row.type, "dim")],
        [TextPart(bar(row.busy or 0.0, BAR), tone)],
        [TextPart(known_share(row.busy), tone)],
        [TextPart(known_share(row.memory))],
        [TextPart("-" if row.watts is None else f"{row.watts:.0f} W")],
        [TextPart("-" if row.heat is None else f"{row.heat:.0f} C")],
        _job_cell(row),
        [TextPart(clean(row.user))],
    )


def _job_cell(row: GpuRow) -> Cell:
    sign_text = {"lost": "lost", "silent": "no answer", "taken": "others"}.get(
        row.sign, ""
    )
    if sign_text:
        return [TextPart(sign_text, "bad" if row.sign == "lost" else "warn")]
    if not row.holders:
        return [TextPart("free", "dim")]
    first_holder, _, remaining_holders = row.holders.partition(",")
    remainder_text = (
        f" and {remaining_holders.count(',') + 1} more" if remaining_holders else ""
    )
    return [
        TextPart(
            clean(
                f"{row.job} "[: len(row.job) + 1].lstrip()
                + first_holder
                + remainder_text
            )
        )
    ]


ORDERS: Final[Mapping[str, Order[GpuRow]]] = {
    "place": Order("NODE", lambda row: (natural(row.node), row.index)),
    "busy": Order("BUSY", lambda row: row.busy, down=True),
    "held but idle": Order("USE", lambda row: row.busy if row.holders else None),
    "memory": Order("MEM", lambda row: row.memory, down=True),
    "power": Order("POWER", lambda row: row.watts, down=True),
    "heat": Order("HEAT", lambda row: row.heat, down=True),
    "job": Order("JOB", lambda row: (row.job, row.holders) if row.holders else None),
    "user": Order("USER", lambda row: row.user or None),
}
