"""Reading of traces of requests to models: Mooncake's lines of JSON, and Azure's CSV."""

import csv
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

from corral.domain.errors import SpecInvalid
from corral.plan.service_replay.trace_request import BLOCK_TOKENS, TraceRequest
from corral.traces.traces import log_lines

AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_TOKENS: Final = 100_000_000
MOST_REQUESTS: Final = 5_000_000
MOST_SECONDS: Final = 1e9  # of a trace
FORMS_HINT: Final = (
    "give lines of JSON with timestamp (ms), input_length, output_length and hash_ids, or "
    "CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens"
)


class _TraceRow(NamedTuple):
    seconds: float  # since any time
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


def read_request_trace(path: Path, *, speed: float = 1.0) -> list[TraceRequest]:
    """Read a trace of requests, plain or gzipped, and order it by arrival.

    Args:
        speed: number by which the times of the trace are divided.

    Raises: SpecInvalid that names the line, if the file is not such a trace.
    """
    lines = log_lines(path, missing_hint=FORMS_HINT)
    try:
        head = next(lines, "")
        if head.lstrip("\ufeff \t\r\n").startswith("{"):
            rows = list(_mooncake_rows(chain([head.lstrip("\ufeff")], lines)))
        elif "," in head:
            rows = list(_azure_rows(head, lines))
        else:
            raise ValueError("line 1 is neither JSON nor a header of CSV")
        if not rows:
            raise ValueError("it has no request")
    except ValueError as error:
        raise SpecInvalid(
            f"{path} is not a trace of requests: {error}", hint=FORMS_HINT
        ) from error
    return _ordered(rows, speed, path)


def is_request_trace(head: str) -> bool:
    """Return whether the first line of a file is that of a trace of requests."""
    return '"input_length"' in head or all(name in head for name in AZURE_COLUMNS)


def _ordered(rows: list[_TraceRow], speed: float, path: Path) -> list[TraceRequest]:
    rows.sort(key=lambda row: row.seconds)
    first = rows[0].seconds
    if rows[-1].seconds - first > MOST_SECONDS:
        raise SpecInvalid(
            f"{path} spans more than {MOST_SECONDS:g} seconds",
            hint="give times in milliseconds (JSON) or as dates (CSV)",
        )
    return [
        TraceRequest(
            (row.seconds - first) / speed,
            row.prompt_tokens,
            max(1, row.output_tokens),
            row.blocks,
        )
        for row in rows
    ]


def _mooncake_rows(lines: Iterable[str]) -> Iterator[_TraceRow]:
    """Yield the requests of lines of JSON. Raises: ValueError that names the line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _mooncake_row(json.loads(line))
        except (ValueError, RecursionError) as error:
            reason = "invalid JSON" if _is_syntax_error(error) else error
            raise ValueError(f"line {number}: {reason}") from error
        _check_count(number)


def _is_syntax_error(error: Exception) -> bool:
    return isinstance(error, json.JSONDecodeError | RecursionError)


def _mooncake_row(row: Any) -> _TraceRow:
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    for name in ("timestamp", "input_length", "output_length"):
        if name not in row:
            raise ValueError(f"{name} is missing")
    timestamp = row["timestamp"]
    if type(timestamp) not in (int, float) or not isfinite(timestamp):
        raise ValueError(f"timestamp is {_short(timestamp)}, not a number")
    if timestamp < 0:
        raise ValueError(f"timestamp is {_short(timestamp)}, which is negative")
    tokens = _token_count(row["input_length"], "input_length", least=1)
    blocks = row.get("hash_ids", [])
    if not isinstance(blocks, list) or any(type(block) is not int for block in blocks):
        raise ValueError("hash_ids is not a list of whole numbers")
    if len(blocks) > ceil(tokens / BLOCK_TOKENS):
        raise ValueError(
            f"{len(blocks)} hash_ids are too many for {tokens:,} tokens: a block has "
            f"{BLOCK_TOKENS} tokens"
        )
    output = _token_count(row["output_length"], "output_length", least=0)
    return _TraceRow(timestamp / 1000.0, tokens, output, tuple(blocks))


def _azure_rows(head: str, lines: Iterable[str]) -> Iterator[_TraceRow]:
    """Yield the requests of lines of CSV. Raises: ValueError that names the line."""
    columns = [name.strip() for name in head.lstrip("\ufeff").strip().split(",")]
    missing = [name for name in AZURE_COLUMNS if name not in columns]
    if missing:
        raise ValueError(f"line 1: the header does not contain {', '.join(missing)}")
    at, context, generated = (columns.index(name) for name in AZURE_COLUMNS)
    begin: datetime | None = None
    reader = csv.reader(lines)
    try:
        for row in reader:
            if not row:
                continue
            if len(row) <= max(at, context, generated):
                raise ValueError("too few cells")
            moment = _moment(row[at].strip())
            begin = begin or moment
            if (begin.tzinfo is None) != (moment.tzinfo is None):
                raise ValueError("TIMESTAMP has a time zone in some lines only")
            prompt = _token_count(_whole(row[context]), "ContextTokens", least=1)
            output = _token_count(_whole(row[generated]), "GeneratedTokens", least=0)
            yield _TraceRow((moment - begin).total_seconds(), prompt, output)
            _check_count(reader.line_num)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"line {reader.line_num + 1}: {error}") from error


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"TIMESTAMP is {_short(text)}, not a date") from None


def _whole(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return text


def _token_count(value: object, name: str, *, least: int) -> int:
    if type(value) is not int:
        raise ValueError(f"{name} is {_short(value)}, not a whole number")
    if not least <= value <= MOST_TOKENS:
        raise ValueError(
            f"{name} is {value:,}: it must be from {least} to {MOST_TOKENS:,}"
        )
    return value


def _check_count(line: int) -> None:
    if line > MOST_REQUESTS:
        raise ValueError(f"it has more than {MOST_REQUESTS:,} lines")


def _short(value: object) -> str:
    return repr(value)[:40]
