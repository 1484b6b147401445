"""`corral report lent`: what the sleeping replicas of services have lent, and how soon
they were taken back."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from corral.cli.head_options import Common
from corral.cli.printing import clean, note, print_json, say, show_table, table
from corral.domain.units import counted, share_text

if TYPE_CHECKING:
    from corral.wire.service_answers import LentReportView, LentView

_NUMBERS = ("GPU-HOURS", "LOST", "EARNED", "TAKEN BACK")


def lent(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Report what the sleeping replicas of services have lent since each was made.

    Sums are of GPU-hours. A take-back is a wake for which other jobs had to stop.
    """
    with common.client() as client:
        report = client.lent_report()
    if common.json:
        print_json(report)
        return
    if not report.services:
        note("no service lets replicas sleep; to let them, write: sleeping: 1")
        return
    for service in report.services:
        say(f"{_name(service)}: {'; '.join(_sentences(service, report))}")
    rows = list(_rows(report))
    if rows:
        lines = table("SERVICE", "QUEUE", "USER", "GPU", *_NUMBERS, right=_NUMBERS)
        for row in rows:
            lines.add_row(*row)
        show_table(lines)


def _name(lent: "LentView") -> str:
    name = clean(lent.service)
    return f"{name} (stopped)" if lent.is_stopped else name


def _sentences(lent: "LentView", report: "LentReportView") -> Iterator[str]:
    """Yield the parts of the sentence about one service."""
    if not lent.is_stopped:
        falling = f", {lent.falling_asleep} falling asleep" * bool(lent.falling_asleep)
        yield f"{counted(lent.sleeping, 'replica')} asleep now{falling}"
    part = lent.lent_gpu_hours / lent.asleep_gpu_hours if lent.asleep_gpu_hours else 0.0
    yield (
        f"{lent.asleep_gpu_hours:,.2f} GPU-hours asleep, of which {share_text(part)} "
        "were lent"
    )
    if lent.lent_gpu_hours:
        useful = 1.0 - lent.lost_gpu_hours / lent.lent_gpu_hours
        yield f"{share_text(max(0.0, useful), 1)} of the lent hours were not lost"
    if lent.earned:
        yield f"earned {lent.earned:,.2f} {clean(report.currency)}".rstrip()
    if lent.take_backs:
        bound = lent.back_within_seconds
        within = (
            f", {lent.take_backs_in_time} of them within {bound:g} s" if bound else ""
        )
        seconds = sorted(lent.take_back_seconds)
        times = ""
        if seconds:
            middle = seconds[len(seconds) // 2]
            times = f" (median {middle:.1f} s, longest {seconds[-1]:.1f} s)"
        yield f"{counted(lent.take_backs, 'take-back')}{within}{times}"


def _rows(report: "LentReportView") -> Iterator[tuple[str, ...]]:
    for service in report.services:
        for borrower in service.borrowers:
            yield (
                _name(service),
                borrower.queue,
                borrower.user,
                borrower.gpu_type,
                f"{borrower.gpu_hours:,.2f}",
                f"{borrower.lost_gpu_hours:,.2f}",
                "" if borrower.earned is None else f"{borrower.earned:,.2f}",
                str(borrower.take_backs),
            )
