"""The page of one job: the reason of its state, its curves, and its last output. No
I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corral.cli.curves.rows import CurveRow, Picture
from corral.cli.curves.sparkline import sparkline, value_text
from corral.cli.job_row import time_of
from corral.cli.printing import STYLES, age_text, clean
from corral.cli.top.jobs import TONES
from corral.cli.top.state import HeadLink
from corral.cli.top.styled_text import Line, TextPart, sized, wrapped

if TYPE_CHECKING:
    from corral.wire import api

LEAST_LOG: Final = 4  # lines that the log has, whatever else there is
MOST_WHY: Final = 6
NAMES: Final = 22  # columns of a curve's name
NUMBERS: Final = 8  # of each of its numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKnown:
    """The newest answers about one job; None: no answer yet. `log_said`: why there is
    no log."""

    job: "api.JobDetail | None" = None
    why: "api.Why | None" = None
    picture: Picture | None = None
    log: Sequence[str] = ()
    log_said: str = ""
    link: HeadLink = HeadLink()


def page(known: JobKnown, width: int, height: int, now: float) -> list[Line]:
    """Return the page as exactly `height` lines.

    The log fills the lines that remain, with its newest lines last.
    """
    job = known.job
    if job is None:
        link_state = known.link.why or "asking the head"
        return _fit_lines(
            [[TextPart(clean(link_state), "bad" if known.link.why else "dim")]],
            width,
            height,
        )
    top: list[Line] = [
        _title_line(job),
        _facts_line(job, now),
        *_reason_lines(job, known.why, width),
    ]
    curves = _curve_table(known.picture, width)
    room = height - len(top) - 1
    curves = curves[: max(0, room - LEAST_LOG)]
    lines: list[Line] = [
        *top,
        *curves,
        [TextPart("LOG", "title"), TextPart(_of_log(known), "dim")],
    ]
    lines_left = max(0, height - len(lines))
    printed = known.log[max(0, len(known.log) - lines_left) :] if lines_left else ()
    lines += [[TextPart(clean(text.expandtabs(4)))] for text in printed]
    return _fit_lines(lines, width, height)


def _fit_lines(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    blank: list[Line] = [[] for _ in range(max(0, height - len(lines)))]
    return [sized(line, width) for line in [*lines, *blank][:height]]


def _title_line(job: "api.JobDetail") -> Line:
    tone = TONES.get(STYLES.get(job.state, ""), "")
    code = f" with exit code {job.exit_code}" if job.exit_code else ""
    return [
        TextPart(clean(f"{job.name} "), "title"),
        TextPart(f"{job.id}  "),
        TextPart(job.state + code, tone),
    ]


def _facts_line(job: "api.JobDetail", now: float) -> Line:
    shape = job.shape
    kind = f"{shape.gpu_type} " if shape.gpu_type else ""
    nodes = f"{shape.nodes} node{'s' * (shape.nodes > 1)}"
    facts = [
        f"queue {job.queue}, {job.owner}",
        f"{nodes} with {shape.gpus_per_node:g} {kind}GPUs",
        f"attempt {job.attempt}" if job.attempt else "",
        f"{'ran' if job.is_over else 'runs' if job.started_at else 'waits'} for "
        f"{age_text(time_of(job, now))}",
        f"on {','.join(job.nodes)}" if job.nodes else "",
        _step_text(job),
    ]
    return [TextPart(clean(", ".join(fact for fact in facts if fact)), "dim")]


def _step_text(job: "api.JobDetail") -> str:
    progress = job.progress
    if progress is None:
        return ""
    of = f" of {progress.until}" if progress.until else ""
    return f"step {progress.step}{of}"


def _reason_lines(
    job: "api.JobDetail", why: "api.Why | None", width: int
) -> list[Line]:
    """Return the lines that explain why the job waits or failed, and what would change
    that."""
    texts = [job.reason] if job.reason else []
    if why is not None:
        texts = [why.reason] if why.reason else []
        if why.failed is not None and job.state == "FAILED":
            failed = why.failed
            failed_at_text = f", {failed.failed_at}" if failed.failed_at else ""
            quote = f" ({failed.quote}{failed_at_text})" if failed.quote else ""
            texts += [
                f"{failed.text}: {failed.evidence}{quote}",
                f"next: {failed.next}",
            ]
        texts += [why.forecast.text] if why.forecast is not None else []
        texts += [why.holders] if why.holders else []
        texts += [why.ending.text] if why.ending is not None and why.ending.text else []
        texts += why.suggestions
    why_lines = [line for text in texts for line in wrapped(clean(text), width, 2)]
    return [
        [TextPart(line, "warn" if line_index == 0 else "")]
        for line_index, line in enumerate(why_lines[:MOST_WHY])
    ]


def _curve_table(picture: Picture | None, width: int) -> list[Line]:
    if picture is None or picture.is_empty:
        return [[TextPart("no curve yet: a point is kept each 10 s", "dim")]]
    heads = ("LAST" if picture.is_over else "NOW", "MIN", "MEAN", "MAX")
    top = [TextPart("CURVES".ljust(NAMES), "title")]
    top += [TextPart(head.rjust(NUMBERS), "title") for head in heads]
    top += [TextPart("  " + "; ".join(picture.notes), "dim")]
    return [top, *(_curve_line(row, width) for row in picture.rows)]


def _curve_line(row: CurveRow, width: int) -> Line:
    unit_text = "" if row.unit in ("", "share", "bytes/s") else f" ({row.unit})"
    lower_bound, upper_bound = (0.0, 1.0) if row.unit == "share" else (None, None)
    numbers = [
        value_text(number, row.unit)
        for number in (row.last, row.low, row.mean, row.high)
    ]
    wide = max(1, width - NAMES - NUMBERS * len(numbers) - 2)
    return [
        *sized([TextPart(row.name + unit_text)], NAMES),
        *(TextPart(text.rjust(NUMBERS)) for text in numbers),
        TextPart("  "),
        TextPart(
            sparkline(row.values, wide, low=lower_bound, high=upper_bound), "good"
        ),
    ]


def _of_log(known: JobKnown) -> str:
    if not known.link.live:
        return f"  no answer: {clean(known.link.why)}; trying again"
    if known.log_said:
        return f"  {clean(known.log_said)}"
    return "  of rank 0" if known.log else "  rank 0 has printed nothing yet"
