"""What ranks print takes time that grows with it, and not faster, whatever they print.

Texts are made of a pattern's own words, each repeated behind another, with what it
waits for left out: that makes a search start over at each of them.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from time import process_time
from typing import Any

import pytest

from corral.api.errors import RequestInvalid
from corral.api.request_body import check_json
from corral.domain.attempt import Exit
from corral.domain.diagnosis import RankEnd
from corral.domain.ids import NodeId
from corral.health import (
    error_blocks,
    error_chains,
    gang_failure,
    helper_loss,
    labels,
    launcher_words,
    log_parser,
    pattern_hits,
    patterns,
    peer_evidence,
    raised_errors,
    rank_failure,
    script_commands,
    stack_places,
    traceback_frames,
)
from corral.health.gang_failure import failure_of
from corral.health.pattern_form import LINE_CHARACTERS
from corral.health.patterns import PATTERNS

ops: Any = import_module("re._constants")
parser: Any = import_module("re._parser")
SMALL, LARGE = 16 * 1024, 64 * 1024
MOST_RATIO = 10.0  # at four times the size: 4 is linear, 16 quadratic
NOISE_SECONDS = 0.05  # below it a ratio says nothing
LINE_SECONDS = 0.02  # for a line, of which 300 characters are looked at
OF_LINES = (
    patterns,
    traceback_frames,
    pattern_hits,
    labels,
    gang_failure,
    rank_failure,
    error_chains,
    script_commands,
    error_blocks,
    raised_errors,
    launcher_words,
    stack_places,
)  # of a cut line


def found_in(value: object) -> Iterator["re.Pattern[str]"]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from found_in(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from found_in(part)


def of_module(module: object) -> Iterator["re.Pattern[str]"]:
    for value in vars(module).values():
        yield from found_in(value)


def words_of(tree: Any) -> Iterator[str]:
    """Literal runs of a pattern, and the characters of its small classes."""
    run = ""
    for op, argument in tree:
        if op is ops.LITERAL:
            run += chr(argument)
            continue
        if run:
            yield run
            run = ""
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            yield from words_of(argument[2])
        elif op is ops.SUBPATTERN:
            yield from words_of(argument[3])
        elif op is ops.BRANCH:
            for branch in argument[1]:
                yield from words_of(branch)
        elif op is ops.IN:
            yield from (chr(part) for kind, part in argument if kind is ops.LITERAL)
    if run:
        yield run


def attacks(pattern: "re.Pattern[str]", most: int) -> list[tuple[str, str]]:
    """What comes first, and what is repeated behind it."""
    words = list(dict.fromkeys(words_of(parser.parse(pattern.pattern))))[:most]
    units = [*words, "a", " ", "0", "A.", "".join(words[:-1]) or "b"]
    units += [
        f"{first}: 1 {then}" for first, then in zip(words, words[1:], strict=False)
    ]
    return [(first, unit) for unit in units for first in ("", *words[:2])]


def text_of(attack: tuple[str, str], size: int) -> str:
    first, unit = attack
    return (first + unit * (size // len(unit) + 1))[:size]


def seconds(pattern: "re.Pattern[str]", attack: tuple[str, str], size: int) -> float:
    text = text_of(attack, size)
    began = process_time()
    for _ in pattern.finditer(text):
        pass
    pattern.match(text)
    return process_time() - began


WHOLE = [
    one
    for room in (peer_evidence, log_parser, raised_errors, error_blocks, helper_loss)
    for one in of_module(room)
]
LINES = [
    *(one.words for one in PATTERNS),
    *(one for room in OF_LINES for one in of_module(room)),
]


@pytest.mark.parametrize(
    "pattern", dict.fromkeys(WHOLE), ids=lambda one: one.pattern[:40]
)
def test_a_pattern_for_whole_logs_takes_time_that_grows_with_them(
    pattern: "re.Pattern[str]",
) -> None:
    found = attacks(pattern, 10)
    worst = max(found, key=lambda attack: seconds(pattern, attack, 1024))
    large = min(seconds(pattern, worst, LARGE) for _ in range(2))
    if large > NOISE_SECONDS:
        small = min(seconds(pattern, worst, SMALL) for _ in range(2))
        assert large / small < MOST_RATIO, f"{pattern.pattern}: {worst}"


def test_a_pattern_for_lines_is_done_with_a_line_at_once() -> None:
    for pattern in dict.fromkeys(LINES):
        for attack in attacks(pattern, 12):
            took = seconds(pattern, attack, LINE_CHARACTERS)
            assert took < LINE_SECONDS, f"{pattern.pattern[:80]}: {attack}"


@pytest.mark.parametrize(
    "unit",
    [
        "Root Cause rank : 1 ",
        "Root Cause exitcode : 1 ",
        "| ",
        "[rank0]:",
        "[PG ID 1 ",
        '0: Traceback (most recent call last)\n0:   File "a", line 1, in f\n',
        "CUDA",
        "E: \n",
        '  File "a", line 1, in :save',
        "*** [",
        "rank: " + "9" * 50 + " ",
    ],
)
def test_an_end_is_read_in_time_whatever_was_printed(unit: str) -> None:
    def read(size: int) -> float:
        log_parser.printed.cache_clear()
        patterns.pattern_of.cache_clear()
        end = RankEnd(
            rank=0, node=NodeId("n1"), exit=Exit(code=1), tail=text_of(("", unit), size)
        )
        began = process_time()
        assert failure_of([end]) is not None
        return process_time() - began

    assert min(read(LARGE) for _ in range(2)) < 0.5


@pytest.mark.parametrize("unit", ['\\"', "[", '"a":', '\\\\"', '"'])
def test_a_body_is_checked_in_time_whatever_is_sent(unit: str) -> None:
    body = ('"' + unit * 200_000).encode()
    began = process_time()
    with pytest.raises(RequestInvalid):
        check_json(body)
    assert process_time() - began < 2.0


def test_a_key_that_is_given_twice_is_found_among_many() -> None:
    body = b"{" + b",".join(b'"k%d":0' % at for at in range(9_000)) + b',"k8999":1}'
    began = process_time()
    with pytest.raises(RequestInvalid, match="k8999"):
        check_json(body)
    assert process_time() - began < 2.0
