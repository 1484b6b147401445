"""Patterns that assign a line of a log to a class of failure."""

import re
from functools import lru_cache
from typing import Final

from corral.domain.failure_class import FailureKind as F
from corral.health.machine_words import MACHINE_WORDS, SPECIFIC
from corral.health.network_words import NETWORK_WORDS
from corral.health.pattern_form import LINE_CHARACTERS, Pattern
from corral.health.program_words import PROGRAM_WORDS

MACHINE: Final = frozenset(  # machine faults, whatever else the program prints
    {F.GPU_MEMORY, F.GPU_FAULT, F.GPU_MISSING, F.SHARED_MEMORY, F.DISK_FULL, F.STORAGE}
    | {F.HOST_MEMORY, F.LOCKED_MEMORY, F.FABRIC, F.QUOTA}
)
# Printed by a job of one rank that is not a launcher: the lost peer was not one of its
# ranks.
CUT_OFF: Final = re.compile(
    r"^(?!.*(gloo|NCCL)).*\bConnection\w* (broken|closed|reset|aborted)|ConnectionReset"
    r"|ECONNRESET|socket hang up|^(?!.*(gloo|NCCL|coordination|distributed)).*\bUNAVAILABLE\b"
)
# Told by such a job: what it wrote into was closed, a pipe to head for example.
READER_GONE: Final = re.compile(
    r"^(?!.*(?:gloo|NCCL|TCPStore|distributed)).*\bBroken ?[Pp]ipe"
)
PATTERNS: Final = (*SPECIFIC, *MACHINE_WORDS, *NETWORK_WORDS, *PROGRAM_WORDS)
_MACHINE_PATTERNS: Final = tuple(
    pattern for pattern in PATTERNS if pattern.kind in MACHINE
)


@lru_cache(maxsize=4096)  # the ranks of a gang print the same
def pattern_of(line: str, *, machine_only: bool = False) -> Pattern | None:
    """Return the first pattern that matches the line; None if none does. The end of a
    long line is searched if its beginning matches no pattern. `machine_only`: only
    patterns of faults of the machine count."""
    eligible_patterns = _MACHINE_PATTERNS if machine_only else PATTERNS
    line_segments = (line[:LINE_CHARACTERS], line[LINE_CHARACTERS:][-LINE_CHARACTERS:])
    for line_segment in line_segments:
        lowered = line_segment.lower()
        for pattern in eligible_patterns if line_segment else ():
            if pattern.matches(line_segment, lowered):
                return pattern
    return None
