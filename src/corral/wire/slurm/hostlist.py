"""Host lists in the form of Slurm. For example: n[1-3,5],gpu01. No I/O."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

_NUMBERED: Final = re.compile(r"(.*?)(\d+)", re.ASCII)
_SPAN: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
MOST: Final = 100_000


def compress(hosts: Sequence[str]) -> str:
    """Return the shortest host list for the hosts in their order. For example:
    n[1-3,5]. Numbers keep their leading zeros. If a host appears twice (nodes that
    share an address), all hosts are written out."""
    if len(set(hosts)) < len(hosts):
        return ",".join(hosts)
    list_entries: list[str] = []
    numbers: list[str] = []
    prefix: str | None = None
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None or match.group(1) != prefix:
            list_entries += _compress_group(prefix, numbers)
            prefix, numbers = (match.group(1), []) if match else (None, [])
        if match is None:
            list_entries.append(host)
        else:
            numbers.append(match.group(2))
    return ",".join([*list_entries, *_compress_group(prefix, numbers)])


def compress_sorted(hosts: Sequence[str]) -> str:
    """Return the host list sorted by names and numbers, as in listings of Slurm."""
    return compress(sorted(hosts, key=_name_and_number))


def _name_and_number(host: str) -> tuple[str, int, str]:
    match = _NUMBERED.fullmatch(host)
    return (match.group(1), int(match.group(2)), host) if match else (host, -1, host)


def _compress_group(prefix: str | None, numbers: Sequence[str]) -> Iterator[str]:
    if prefix is None or not numbers:
        return
    if len(numbers) == 1:
        yield prefix + numbers[0]
        return
    spans: list[tuple[str, str]] = []
    for number in numbers:
        if spans and _is_next_number(spans[-1][1], number):
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    inner = ",".join(
        first_number if first_number == last_number else f"{first_number}-{last_number}"
        for first_number, last_number in spans
    )
    yield f"{prefix}[{inner}]"


def _is_next_number(last: str, number: str) -> bool:
    """Return whether a number continues a range: 09 after 08, 10 after 9, but not 10
    after 009."""
    return int(number) == int(last) + 1 and (
        len(number) == len(last) or not (last.startswith("0") or number.startswith("0"))
    )


def expand(text: str) -> list[str]:
    """Return every host of a host list, in its order. A name may have several ranges:
    r[1-2]n[1-4].

    Raises: ValueError if the text is no host list.
    """
    all_hosts = (
        name
        for list_entry in _split_hostlist(text)
        for name in _expand_part(text, list_entry)
    )
    expanded = list(islice(all_hosts, MOST + 1))
    if "" in expanded or "]" in "".join(expanded):
        raise ValueError(f"{text!r} is not a valid list of nodes")
    if len(expanded) > MOST:
        raise ValueError(f"{text!r} names more than {MOST:,} nodes")
    return expanded


def _split_hostlist(text: str) -> Iterator[str]:
    """Yield the parts of a host list, split at the commas outside of brackets."""
    return (
        list_entry.strip() for list_entry in re.split(r",(?![^\[]*\])", text.strip())
    )


def _expand_part(text: str, part: str) -> Iterator[str]:
    prefix, bracket, rest = part.partition("[")
    if not bracket:
        yield prefix
        return
    inside, closed, behind = rest.partition("]")
    if not closed:
        raise ValueError(f"{text!r} is not a valid list of nodes: ] is missing")
    for number in _expand_ranges(text, inside):
        for suffix in _expand_part(text, behind):
            yield f"{prefix}{number}{suffix}"


def _expand_ranges(text: str, inside: str) -> Iterator[str]:
    """Yield the numbers of the ranges within brackets. A number keeps its leading
    zeros: 01-03 is 01, 02, 03."""
    for span in inside.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(
                f"{text!r} is not a valid list of nodes: {span!r} is not a number or a "
                "range"
            )
        first_number, last_number = match.group(1), match.group(2) or match.group(1)
        if (
            int(last_number) < int(first_number)
            or int(last_number) - int(first_number) > MOST
        ):
            raise ValueError(
                f"{text!r} is not a valid list of nodes: the range {span!r} ends "
                "before it begins, or is too long"
            )
        for number in range(int(first_number), int(last_number) + 1):
            yield f"{number:0{len(first_number)}}"
