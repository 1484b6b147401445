"""Patterns by which messages of programs show why they failed.

Patterns use numbers rather than words where possible: errno values and HTTP statuses
are the same in every language and library, and the text of a CUDA or HIP status is the
same after every prefix. Sources: PyTorch 2.4 to 2.13 (torch.cuda, c10d, gloo), NCCL
2.18 to 2.27, CUDA Runtime API ("Error codes"), HIP ("Error codes"), glibc strerror,
Python, XLA, vLLM, Hugging Face hub; read in their sources or seen.
"""

import re
from dataclasses import dataclass
from typing import Final

from corral.domain.failure_advice import NextStep
from corral.domain.failure_class import FailureKind


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern whose match shows a failure class.

    Args:
        of_peers: the message says that the rank has lost other ranks, which another
            rank may have caused.
        step: advice that is more specific than the advice for the class.
        hints: words in lower case, of which a line must have one to match; none for a
            pattern that is tried on each line. They only save time.
    """

    kind: FailureKind
    words: "re.Pattern[str]"
    of_peers: bool = False
    step: NextStep | None = None
    hints: tuple[str, ...] = ()

    def matches(self, line: str, lowered: str) -> bool:
        """Return whether the line matches; `lowered` is the line in lower case."""
        if self.hints and not any(hint in lowered for hint in self.hints):
            return False
        return self.words.search(line) is not None


# of a line: the time that a pattern takes may grow with its square
LINE_CHARACTERS: Final = 300
END_CHARACTERS: Final = 150  # of a longer line, which are looked at too
_LEFT_OUT: Final = " ... "


def of(
    kind: FailureKind,
    *words: str,
    of_peers: bool = False,
    step: NextStep | None = None,
    hints: tuple[str, ...] = (),
) -> Pattern:
    """Return the pattern of class `kind` that matches any of these regular expressions."""
    pattern = re.compile("|".join(words), re.IGNORECASE)
    return Pattern(kind, pattern, of_peers, step, hints)


def shortened(line: str, most: int = LINE_CHARACTERS) -> str:
    """Return the line; if it is longer than `most`, return its first `most` characters,
    a sign for the gap, and its end."""
    if len(line) <= most:
        return line
    return f"{line[:most]}{_LEFT_OUT}{line[-END_CHARACTERS:]}"


def errno(*numbers: int) -> str:
    """Return a pattern for these errno values, as Python, Rust, Go's syscall and C++'s
    system_error write them."""
    any_of = "|".join(str(number) for number in numbers)
    return rf"(?:\[Errno |os error |\berrno[ :=]+|\bOs {{ code: )(?:{any_of})\b"


def http(*statuses: int) -> str:
    """Return a pattern for these HTTP statuses, as requests, httpx, aiohttp, curl, boto
    and gRPC gateways write them."""
    any_of = "|".join(str(status) for status in statuses)
    return (
        rf"\b(?:{any_of}) (?:Client|Server) Error\b|\(\W?(?:{any_of})\W?\) when calling|"
        rf"\bHTTP(?:/[\d.]+| Error| status(?: code)?|Error)?[ :=]+\W?(?:{any_of})\b|"
        rf"\bstatus(?:[ _]?code)?[ :=]+\W?(?:{any_of})\b|returned error:? (?:{any_of})\b"
    )
