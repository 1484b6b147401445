"""Excerpt of a log that several processes share: the workers of torchrun, and processes
whose launcher writes a label before each of their rows.

The process that failed first prints its error first. Its peers then print that they
lost it, and the launcher prints a report, so the end of such a log hides the cause.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from corral.agent.last_error import ERROR_LOOKED_AT, begin_of_error, error_in
from corral.agent.log_filter import (
    TRACEBACK,
    cut,
    split,
    without_repeats,
    without_sources,
)
from corral.domain.diagnosis import LEFT_OUT

MOST_LABELS: Final = 256  # of a log; the processes of a node are fewer
MOST_ERRORS: Final = 32  # of the rows without a label
MOST_ERRORS_EACH: Final = 3  # of a process with a label, the newest
REPORT_BYTES: Final = (
    1400  # at least for the end of the log, with the launcher's report
)
ROOT_BYTES: Final = 1536  # at most for the error of the process that failed first
OTHER_BYTES: Final = 768  # at most for the error of another process
SHORT_BYTES: Final = 200  # of an error that another process has printed alike
_REPORT: Final = b"\nRoot Cause (first observed failure):"  # of torchrun
_CHILD_FAILED: Final = b"ChildFailedError"
_REPORT_LOOKED_AT: Final = 2048
_ROOT_RANK: Final = re.compile(rb"\n\s{0,9}rank\s{0,9}: (\d{1,9}) ")
_OF_TORCH: Final = re.compile(rb"^((?:\[(?:rank|default)\d{1,9}\]:)+) ?")
_RANK: Final = re.compile(rb"^\[(?:rank|default)(\d{1,9})\]:")
_HEAD: Final = re.compile(
    rb"^([^\n]{1,60}?)Traceback \(most recent call last\)", re.MULTILINE
)
_FRAME: Final = re.compile(
    rb'^([^\n]{1,60}?)  File "[^"\n]{1,500}", line \d', re.MULTILINE
)
_CLOCK: Final = re.compile(rb"\d\d:\d\d")  # a row's time is not a process
_NUMBERS: Final = re.compile(rb"\d+|0x[0-9a-f]+")
_SEVERE: Final = re.compile(
    rb"^\[[EF][\d ]|^[EF]\d{4} |\b(?:ERROR|FATAL|CRITICAL)\b|^\S{0,40}Error\b"
)


Rows = Sequence[tuple[int, bytes]]  # each with its index in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerError:
    """An error of one process.

    Args:
        at: index of its first row in the log.
        text: its rows, without the label of the process.
        is_root: the launcher reports that this process failed first.
        is_last: the process has printed no error after it.
    """

    at: int
    label: bytes
    text: bytes
    is_root: bool = False
    is_last: bool = True

    @property
    def shape(self) -> bytes:
        """The message without its numbers, which peers print alike."""
        return _NUMBERS.sub(b"0", self.message)

    @property
    def message(self) -> bytes:
        """The first row of the last message."""
        rows = self.text.strip().split(b"\n")
        first = len(rows) - 1
        while first > 0 and not rows[first - 1].startswith((b" ", b"Traceback")):
            first -= 1
        return rows[first]

    @property
    def short(self) -> "_WorkerError":
        """The error with its message only."""
        return replace(self, text=self.message[:SHORT_BYTES])

    @property
    def sent(self) -> bytes:
        """The rows with their label."""
        rows = self.text.rstrip().split(b"\n")
        return b"".join(self.label + row + b"\n" for row in rows if row.strip())


def is_shared(text: bytes) -> bool:
    """Return whether several processes have written this text."""
    return _CHILD_FAILED in text or len(_labels_of(text)) > 1


def root_rank(text: bytes) -> int | None:
    """Return the rank of the worker that torchrun reports as the first to fail; None
    without a report."""
    begin = text.rfind(_REPORT)
    if begin < 0:
        return None
    match = _ROOT_RANK.search(text, begin, begin + _REPORT_LOOKED_AT)
    return None if match is None else int(match[1])


def last_error_of(rank: int, text: bytes) -> bytes:
    """Return the rows of a worker of torchrun from its last traceback on; b"" without a
    traceback."""
    head = re.compile(
        rb"^\[(?:rank|default)%d\]:[^\n]{0,40}Traceback \(" % rank, re.MULTILINE
    )
    begin = max((match.start() for match in head.finditer(text)), default=None)
    if begin is None:
        return b""
    rows = text[begin : begin + ERROR_LOOKED_AT].split(b"\n")
    return b"".join(row + b"\n" for row in rows if _rank_of(row) == rank)


def excerpt_of_workers(text: bytes, most: int) -> bytes:
    """Return an excerpt of a log that several processes share, in at most `most` bytes:
    the errors of its processes in their order, then the end of the other rows.

    The process that failed first by the launcher's report has precedence, then errors
    that differ from others. Errors that peers print alike are shortened or left out.
    """
    processes, others = _by_process(text)
    end = _substance(others)
    end_begin = _begin_of_end(end)
    root = root_rank(text)
    errors = [
        error
        for label, rows in processes.items()
        for error in _errors_of(
            label, rows, is_root=root is not None and _rank_of(label) == root
        )
    ]
    errors += [
        error
        for error in _errors_in(b"", end, MOST_ERRORS, ROOT_BYTES)
        if error.at < end_begin and _CHILD_FAILED not in error.text
    ]
    chosen = _chosen(errors, most - REPORT_BYTES - len(LEFT_OUT))
    sent = b"".join(error.sent for error in chosen) + LEFT_OUT.encode()
    return sent + _end_with_report(_after(chosen, end), most - len(sent))


def _labels_of(text: bytes) -> list[bytes]:
    """Return the labels in the text, the longest first, since one label may begin with
    another."""
    heads = {match[1] for match in _HEAD.finditer(text)} if TRACEBACK in text else set()
    frames = {match[1] for match in _FRAME.finditer(text)} if heads else set()
    labels = {
        label
        for label in heads & frames
        if label.strip(b" +|") and _CLOCK.search(label) is None
    }
    return sorted(labels, key=len, reverse=True)[:MOST_LABELS]


def _by_process(text: bytes) -> tuple[dict[bytes, list[tuple[int, bytes]]], Rows]:
    """Return the rows of each process by its label, without the label, and the rows
    that have none."""
    labels = frozenset(_labels_of(text))
    sizes = sorted({len(label) for label in labels}, reverse=True)
    processes: dict[bytes, list[tuple[int, bytes]]] = {}
    others: list[tuple[int, bytes]] = []
    for index, row in enumerate(split(text)):
        if (of_torch := _OF_TORCH.match(row)) is not None:
            label, inner = of_torch[1] + b" ", row[of_torch.end() :]
        else:
            label = next((row[:size] for size in sizes if row[:size] in labels), b"")
            inner = row[len(label) :]
        (processes.setdefault(label, []) if label else others).append((index, inner))
    return processes, others


def _errors_of(label: bytes, rows: Rows, *, is_root: bool) -> list[_WorkerError]:
    """Return the last errors of a process; without one, the rows that come closest to
    an error."""
    most_bytes = ROOT_BYTES if is_root else OTHER_BYTES
    errors = list(_errors_in(label, rows, MOST_ERRORS_EACH, most_bytes))
    if errors:
        return [replace(error, is_root=is_root) for error in errors]
    severe = [one for one in rows if _SEVERE.search(one[1][:SHORT_BYTES])]
    if not severe:
        return []
    text = b"\n".join(dict.fromkeys(cut(row) for _, row in (severe[0], severe[-1])))
    return [_WorkerError(at=severe[0][0], label=label, text=text, is_root=is_root)]


def _errors_in(
    label: bytes, rows: Rows, most: int, most_bytes: int
) -> Iterator[_WorkerError]:
    """Yield at most `most` errors in the rows of one process, the newest first; the
    newest with at most `most_bytes`, others with at most OTHER_BYTES."""
    text = b"\n".join(row for _, row in rows)
    for number in range(most):
        begin = begin_of_error(text)
        if begin is None:
            return
        error = error_in(text, OTHER_BYTES if number else most_bytes)
        at = rows[text.count(b"\n", 0, begin)][0]
        yield _WorkerError(at=at, label=label, text=error, is_last=number == 0)
        text = text[: text.rfind(b"\n", 0, begin + 1) + 1]


def _rank_of(label: bytes) -> int | None:
    match = _RANK.match(label)
    return None if match is None else int(match[1])


def _substance(rows: Rows) -> Rows:
    """Return the rows without those that do not describe a failure."""
    short_rows = [(index, cut(row)) for index, row in rows]
    kept = iter(without_repeats(without_sources([row for _, row in short_rows])))
    next_kept = next(kept, None)
    result = []
    for index, row in short_rows:
        if row is next_kept:
            result.append((index, row))
            next_kept = next(kept, None)
    return result


def _begin_of_end(rows: Rows) -> int:
    """Return the index of the first row that is sent as the end of the log in any
    case."""
    remaining = REPORT_BYTES
    for index, row in reversed(rows):
        remaining -= len(row) + 1
        if remaining < 0:
            return index + 1
    return 0


def _after(chosen: Iterable[_WorkerError], rows: Rows) -> Rows:
    """Return the rows without a label that were printed after the last chosen error of
    them."""
    last_rows = [
        error.text.rstrip().split(b"\n")[-1] for error in chosen if not error.label
    ]
    if not last_rows:
        return rows
    ends = [number for number, (_, row) in enumerate(rows) if row == last_rows[-1]]
    return rows[ends[-1] + 1 :] if ends else rows


def _chosen(errors: Iterable[_WorkerError], most: int) -> list[_WorkerError]:
    """Return the errors that fit into `most` bytes: those that repeat another one
    first, each group in the order of the log."""
    by_precedence = sorted(
        errors, key=lambda error: (not error.is_root, not error.is_last, error.at)
    )
    seen_shapes: set[bytes] = set()
    different: list[_WorkerError] = []
    alike: list[_WorkerError] = []
    for error in by_precedence:
        if error.shape not in seen_shapes:
            different.append(error)
        elif error.label:
            alike.append(error.short)
        seen_shapes.add(error.shape)
    chosen: list[_WorkerError] = []
    for error in (*different, *alike):
        fitting = next(
            (one for one in (error, error.short) if len(one.sent) <= most), None
        )
        if fitting is not None:
            chosen.append(fitting)
            most -= len(fitting.sent)
    chosen.sort(key=lambda error: error.at)
    repeats = [error for error in chosen if error in alike]
    return repeats + [error for error in chosen if error not in alike]


def _end_with_report(rows: Rows, most: int) -> bytes:
    """Return the last `most` bytes of the rows. They begin with the launcher's report
    of the first failure if that is further from the end."""
    text = b"\n".join(row for _, row in rows)
    begin = text.rfind(_REPORT)
    if 0 <= begin < len(text) - most:
        report = text[begin + 1 : begin + most // 2] + b"\n"
        return report + _last_rows(text, most - len(report))
    return _last_rows(text, most)


def _last_rows(text: bytes, most: int) -> bytes:
    """Return the last rows of the text, in at most `most` bytes."""
    if len(text) <= most:
        return text
    return text[-most:].partition(b"\n")[2]
