"""Labels that a launcher writes before each line of a process, as `srun -l` does.

A label is any text that stands both before the first line of a traceback and before a
frame line. Launchers and their options have many forms of labels.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

MOST_LABELS: Final = 64  # of a log; each row is compared with each

_HEAD: Final = re.compile(r"^([^\n]{1,60}?)Traceback \(most recent call last\)")
_CLOCK: Final = re.compile(r"\d\d:\d\d")
_FRAME: Final = re.compile(r'^([^\n]{1,60}?)  File "[^"\n]{1,500}", line \d')


def without_labels(rows: Sequence[str]) -> list[str]:
    """Return the rows with their labels removed. Where the rows of several processes
    are mixed, each process's rows are put together, and the process that printed last
    comes last."""
    labels = labels_of(rows)
    if not labels:
        return list(rows)
    bare: list[str] = []
    run: dict[str, list[str]] = {}
    for row in rows:
        label = next(
            (row_label for row_label in labels if _has_label(row, row_label)), None
        )
        if label is None:
            bare += _rows_by_process(run)
            bare.append(row)
            run = {}
        else:
            of_label = run.pop(label, [])
            of_label.append(row[len(label) :])
            run[label] = of_label  # behind those that printed before
    return [*bare, *_rows_by_process(run)]


def labels_of(rows: Sequence[str]) -> list[str]:
    """Return the labels in the rows, the longest first, since one label may begin with
    another."""
    heads = {
        label_match[1]
        for row in rows
        if "Traceback" in row and (label_match := _HEAD.match(row))
    }
    frames = {
        label_match[1]
        for row in rows
        if 'File "' in row and (label_match := _FRAME.match(row))
    }
    labels = sorted(
        (label for label in heads & frames if label.strip()), key=len, reverse=True
    )
    return labels[:MOST_LABELS]


def is_shared(rows: Sequence[str]) -> bool:
    """Return whether the labels in the rows name several processes, and not the times
    of the rows."""
    return sum(_CLOCK.search(label) is None for label in labels_of(rows)) > 1


def _has_label(row: str, label: str) -> bool:
    return row.startswith(label) or row == label.rstrip()


def _rows_by_process(run: dict[str, list[str]]) -> Iterator[str]:
    for rows in run.values():
        yield from rows
