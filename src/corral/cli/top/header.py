"""The lines above the tables: a summary of the cluster. No I/O."""

from typing import TYPE_CHECKING, Final

from corral.cli.printing import age_text, clean, clock_text
from corral.cli.top.state import HeadLink, TopState
from corral.cli.top.styled_text import Line, TextPart, bar, sized
from corral.domain.units import counted, share_text

if TYPE_CHECKING:
    from corral.wire.gpus import GpusNow

LINES: Final = 3
BAR: Final = 12
LIST: Final = "{:,.2f} USD an hour at list prices"


def header(known: TopState, width: int, now: float, said: str = "") -> list[Line]:
    """Return the three lines of the header. The last line shows a notice, such as the
    result of the last key press."""
    rows = [_gpu_line(known), _workload_line(known), _notice_line(known, now, said)]
    return [sized(row, width) for row in rows]


def _gpu_line(known: TopState) -> list[TextPart]:
    status = known.status
    if status is None:
        return [TextPart("asking the head", "dim")]
    gpus = status.gpus
    share = gpus.used / gpus.total if gpus.total else 0.0
    text_parts = [
        TextPart("GPUs ", "title"),
        TextPart(bar(share, BAR), "good"),
        TextPart(f" {gpus.used:g} of {gpus.total} used, {gpus.free:g} free"),
    ]
    if gpus.away:
        text_parts.append(TextPart(f", {gpus.away} unavailable now", "warn"))
    if gpus.taken:
        text_parts.append(TextPart(f", {gpus.taken} used by programs outside Corral"))
    if known.held_busy is not None:
        text_parts.append(
            TextPart(
                f"  busy {share_text(known.held_busy)}", busy_tone(known.held_busy)
            )
        )
    if known.watts is not None:
        text_parts.append(TextPart(f"  {watts_text(known.watts)}"))
    if gpus.pretend:
        text_parts.append(TextPart("  (pretend)", "dim"))
    return text_parts


def money_text(now: "GpusNow") -> str:
    """Return for example: 2.50 EUR an hour, 19.66 USD an hour at list prices."""
    own_cost = f"{now.cost_per_hour:,.2f} {now.currency} an hour"
    if not now.list_cost_per_hour:
        return own_cost
    listed = LIST.format(now.list_cost_per_hour)
    return f"{own_cost}, {listed}" if now.cost_per_hour else listed


def _workload_line(known: TopState) -> list[TextPart]:
    status = known.status
    if status is None:
        return []
    alive = sum(node.liveness == "alive" for node in status.nodes)
    queued = status.jobs.get("QUEUED", 0)
    running = status.jobs.get("RUNNING", 0)
    other_count = sum(status.jobs.values()) - queued - running
    text_parts = [
        TextPart("nodes ", "title"),
        TextPart(
            f"{alive} of {len(status.nodes)} alive",
            "" if alive == len(status.nodes) else "warn",
        ),
        TextPart("  jobs ", "title"),
        TextPart(f"{running} running, {queued} waiting"),
        TextPart(f", {other_count} other" if other_count else ""),
    ]
    if known.gpus is not None:
        text_parts.append(TextPart(f"  {money_text(known.gpus)}"))
        unpriced = known.gpus.unpriced_gpus
        text_parts.append(
            TextPart(
                f" and {counted(unpriced, 'GPU')} without a price" if unpriced else "",
                "dim",
            )
        )
    return text_parts


def _notice_line(known: TopState, now: float, said: str) -> list[TextPart]:
    """Return the most important notice, the first that exists of: the head does not
    answer, the result of the last key press, a warning, the time."""
    if not known.link.live:
        return away(known.link, known.at, now)
    if said:
        return [TextPart(clean(said), "warn")]
    warnings = known.status.warnings if known.status is not None else []
    if warnings:
        remainder_text = (
            f" (and {len(warnings) - 1} more: corral status)"
            if len(warnings) > 1
            else ""
        )
        return [TextPart(clean(warnings[0].text) + remainder_text, "warn")]
    cluster_text = (
        f"{known.status.cluster.engine}, {known.status.head.url}"
        if known.status
        else ""
    )
    return [TextPart(f"{cluster_text}  {clock_text(now)[11:]}", "dim")]


def away(link: HeadLink, at: float, now: float) -> list[TextPart]:
    """Return a notice that the head is silent: how old the data is, and what to do."""
    silent_text = age_text(now - link.since)
    shown_time_text = f"; shown is {clock_text(at)[11:]}" if at else ""
    hint = f"; {link.hint}" if link.hint else ""
    return [
        TextPart(
            clean(
                f"no answer for {silent_text}: {link.why}{shown_time_text}; trying again{hint}"
            ),
            "bad",
        )
    ]


def busy_tone(share: float | None) -> str:
    """Return the colour of an allocated GPU, by how busy it is."""
    if share is None:
        return "dim"
    return "bad" if share < 0.05 else "warn" if share < 0.5 else "good"


def watts_text(watts: float | None) -> str:
    if watts is None:
        return "-"
    if watts >= 1e6:
        return f"{watts / 1e6:.2f} MW"
    return f"{watts / 1000:.1f} kW" if watts >= 10_000 else f"{watts:.0f} W"


def known_share(part: float | None) -> str:
    return "-" if part is None else share_text(part)
