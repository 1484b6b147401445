"""The page of codes: reasons, events, receipts, causes and warnings, from their enums."""

from collections.abc import Iterable

from corral.domain.cause import Cause
from corral.domain.cluster_warning import WarningCode
from corral.domain.coded import Coded
from corral.domain.event_kind import EventKind
from corral.domain.job_states import StopWhy
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import ReceiptKind
from corral.domain.trouble_kind import TroubleKind

ABOUT = """# Codes

What programs may rely on. The sentences that come with codes are for people: they may
change, and nothing in Corral reads them. A code stays as it is.
"""
SECTIONS: tuple[tuple[str, str, type[Coded]], ...] = (
    (
        "Reasons of jobs",
        "`code` of `corral why --json`, and `reason_code` of a job: why it waits, is held, "
        "stops or has ended.",
        ReasonCode,
    ),
    (
        "Events",
        "`kind` of an event, in `corral job events`, `corral run` and the streams.",
        EventKind,
    ),
    (
        "Receipts",
        "`kind` of a receipt: what an interruption was, and has cost.",
        ReceiptKind,
    ),
    (
        "Causes",
        "`cause` of an attempt and of its receipt, which decides which retries pay.",
        Cause,
    ),
    ("Why a job stops", "`why` of a job that is STOPPING.", StopWhy),
    ("Warnings", "`code` of the warnings of `corral status --json`.", WarningCode),
    (
        "Trouble of attempts",
        "`trouble_kind` of what an agent reports of an attempt.",
        TroubleKind,
    ),
)


def page() -> str:
    """Return the page as Markdown."""
    return ABOUT + "".join(_section(*section) for section in SECTIONS)


def _section(title: str, about: str, codes: Iterable[Coded]) -> str:
    rows = [
        f"| {f'`{code}`' if code else 'empty'} | {code.meaning} | {code.remedy} |"
        for code in codes
    ]
    head = "| code | meaning | remedy |\n| --- | --- | --- |\n"
    return f"\n## {title}\n\n{about}\n\n{head}" + "\n".join(rows) + "\n"
