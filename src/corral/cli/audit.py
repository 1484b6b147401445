"""audit: show, export and verify the log of who asked for what."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.cluster import check_ours
from corral.cli.error_output import DONE, JOB_FAILED, Usage
from corral.cli.head_options import MOST_ROWS, Common
from corral.cli.option_types import (
    AuditAnchor,
    PathText,
    PeriodStart,
    RequestPrefix,
    UserName,
    WholeNumber,
)
from corral.cli.printing import (
    clean,
    clock_text,
    cut,
    note,
    print_json,
    say,
    show_table,
    table,
)
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.domain.audit_chain import Anchor
    from corral.wire.users import AuditEntryView

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_ANCHOR: Final = re.compile(r"(\d{1,18}):([0-9a-f]{64})", re.ASCII)
_NEEDS_VERIFY: Final = "run: corral audit --verify --anchor NUMBER:LINK"


def audit(
    *,
    user: UserName | None = None,
    since: PeriodStart | None = None,
    what: RequestPrefix | None = None,
    limit: Annotated[WholeNumber, Parameter(name=["--limit", "-n"])] = 100,
    export: Annotated[PathText | None, Parameter(allow_leading_hyphen=True)] = None,
    verify: _Flag = False,
    anchor: AuditAnchor | None = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Show the audit log, newest entries last; or export or verify it.

    Args:
        user: Show only requests of this user (default: all users).
        since: Show only entries of this last period, for example 2h or 1d (default:
            all).
        what: Show only requests whose name begins with PREFIX, for example job. or
            secret.read (default: all).
        limit: Show at most N entries, the newest.
        export: Instead of showing the entries, write them as JSON lines, oldest first,
            to this new file, or to standard output if it is -.
        verify: Check the hash chain of the audit log in the cluster's directory on this
            machine; the head need not run. The exit code is 1 if an entry was changed
            or removed; the first such entry is named.
        anchor: With --verify, check also that the log still contains this anchor, which
            an earlier --verify printed. Without it, a log that was cut off at its end
            or replaced is not noticed.
    """
    if anchor is not None and not verify:
        raise Usage("--anchor requires --verify", hint=_NEEDS_VERIFY)
    if verify:
        return _verify_audit_chain(
            common, None if anchor is None else _parse_anchor(anchor)
        )
    if not 1 <= limit <= MOST_ROWS:
        raise Usage(
            f"--limit {limit} is not valid: it must be 1 to 10,000 entries",
            hint="run: corral audit --limit 100",
        )
    since_seconds = (
        0.0 if since is None else max(0.0, SystemClock().wall() - _parse_since(since))
    )
    if export is not None:
        return _export_entries(common, export, user, since_seconds, what or "")
    _print_entries(common, user, since_seconds, what or "", limit)
    return DONE


def _parse_since(text: str) -> float:
    from corral.domain.units import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise Usage(f"--since: {error}", hint="for example: --since 1d") from None


def _print_entries(
    common: Common, user: str | None, since: float, what: str, limit: int
) -> None:
    with common.client() as client:
        audit_entry_views = client.audit(user=user, since=since, limit=limit)
    audit_entry_views = [
        entry for entry in reversed(audit_entry_views) if entry.what.startswith(what)
    ]
    if common.json:
        print_json(
            {"entries": [entry.model_dump(mode="json") for entry in audit_entry_views]}
        )
        return
    rows = table("WHEN", "WHO", "KIND", "FROM", "TOKEN", "WHAT", "ON", "RESULT")
    for audit_entry_view in audit_entry_views:
        rows.add_row(
            clock_text(audit_entry_view.at),
            audit_entry_view.by,
            audit_entry_view.kind,
            clean(audit_entry_view.source),
            audit_entry_view.token or "",
            audit_entry_view.what,
            clean(audit_entry_view.on),
            cut(_format_result(audit_entry_view)),
        )
    show_table(rows)


def _format_result(entry: "AuditEntryView") -> str:
    if entry.accepted:
        return f"accepted: {entry.detail}" if entry.detail else "accepted"
    times = f" ({entry.count:,} times)" if entry.count > 1 else ""
    return f"refused: {entry.code or entry.detail}{times}"


def _export_entries(
    common: Common, to: str, user: str | None, since: float, what: str
) -> int:
    written, last_number = 0, 0
    with common.client() as client, _open_export_file(to) as export_file:
        while page := client.audit(
            user=user, since=since, after=last_number, limit=MOST_ROWS
        ):
            for audit_entry_view in page:
                if audit_entry_view.what.startswith(what):
                    export_file.write(audit_entry_view.model_dump_json() + "\n")
                    written += 1
            last_number = page[-1].number
    if to != "-":
        note(f"{to}: {counted(written, 'entry', 'entries')} up to number {last_number}")
    return DONE


@contextmanager
def _open_export_file(to: str) -> Iterator[IO[str]]:
    """Open a new file that only its owner can read, or standard output for "-"."""
    from corral.domain.errors import Conflict

    if to == "-":
        yield sys.stdout
        return
    path = Path(to)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Conflict(
            f"{path} cannot be created: {error.strerror}",
            hint="write to a new file: corral audit --export NEW-FILE",
        ) from None
    with os.fdopen(handle, "w") as file:
        yield file


def _parse_anchor(text: str) -> "Anchor":
    from corral.domain.audit_chain import Anchor

    match = _ANCHOR.fullmatch(text)
    if match is None:
        raise Usage(
            f"--anchor {text[:100]} is not of the form NUMBER:LINK (LINK: 64 "
            "hexadecimal digits)",
            hint=_NEEDS_VERIFY,
        )
    return Anchor(number=int(match[1]), link=match[2])


def _verify_audit_chain(common: Common, anchor: "Anchor | None") -> int:
    from corral.boot.audit import verify_log

    check_ours(common, "audit --verify")
    chain_report = verify_log(common.place, anchor)
    if common.json:
        print_json(
            {
                "whole": not chain_report.fault,
                "fault": chain_report.fault,
                "entries": chain_report.entries,
                "unchained": chain_report.unchained,
                "anchor": f"{chain_report.number}:{chain_report.link}",
            }
        )
        return JOB_FAILED if chain_report.fault else DONE
    if chain_report.fault:
        say(
            f"the audit log was changed: {chain_report.fault} "
            f"(intact before it: {counted(chain_report.entries, 'entry', 'entries')})"
        )
        return JOB_FAILED
    unchained_text = (
        f"; the first {chain_report.unchained:,} are older than the hash chain"
        if chain_report.unchained
        else ""
    )
    entries = counted(chain_report.entries, "entry", "entries")
    say(f"the audit log is intact: {entries}{unchained_text}")
    note(
        "store this anchor outside the cluster; to check against it later, run: "
        f"corral audit --verify --anchor {chain_report.number}:{chain_report.link}"
    )
    return DONE
