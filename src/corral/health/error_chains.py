"""Chains of errors, in which one error led to the next: which error is the cause, and
how the errors are quoted together.

The last error of a chain often hides the first, and the first may be one that the
program expected. Both are therefore quoted, with the cause first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.failure_class import FailureKind
from corral.health.error_blocks import message
from corral.health.pattern_form import END_CHARACTERS, LINE_CHARACTERS
from corral.health.raised_errors import Raised

# errors that were caught before; of more, the program is used to them
MOST_EARLIER: Final = 2
_UNNAMED: Final = re.compile(r"^(?:Name|UnboundLocal)Error\b")
_MISTAKEN: Final = re.compile(r"^(?:Attribute|Type)Error\b")
_TRIED: Final = re.compile(  # what programs do another way when the first way fails
    r"^(?:ModuleNotFound|Import|Key|Attribute|Index|Lookup|Type)Error\b|^StopIteration\b"
)
# programs try these first
_EXPECTED: Final = frozenset(
    {FailureKind.FILES, FailureKind.MODULE, FailureKind.HELPER}
)
# what the client of a service raises of a general error of the network
_OF_SERVICES: Final = frozenset(
    {FailureKind.SERVICE_TIMEOUT, FailureKind.SERVICE, FailureKind.CERTIFICATE}
)


@dataclass(frozen=True, slots=True)
class ErrorChain:
    """The first error of a chain (`root`), and the last one to which it led; both are
    the same for a single error.

    Args:
        is_handled: the last error was raised while an earlier one was handled, either
            by a fallback that also failed or to describe the first error.
    """

    root: Raised
    last: Raised
    is_handled: bool = False

    def place(self, of: Raised) -> str:
        """Return where the error `of` was raised, and in which library. If that is not
        known, return the place of another error of the chain; "" if no place is known.
        """
        raised = (
            of
            if of.place
            else next(
                (
                    raised_error
                    for raised_error in (self.root, self.last)
                    if raised_error.place
                ),
                of,
            )
        )
        return (
            f"{raised.place} (by {raised.library})"
            if raised.place and raised.library
            else raised.place
        )


def chain_of(raised: Sequence[Raised], newest: Raised, line: str = "") -> ErrorChain:
    """Return the chain that ends with the newest error. Errors that only report another
    process's error are left out.

    Args:
        raised: all errors of the log, the oldest first.
        line: a line that shows the failure class; if it belongs to an error in the
            middle, the chain begins with that error.
    """
    links = [
        raised_error
        for raised_error in raised
        if raised_error.chain == newest.chain and not raised_error.is_wrapper
    ]
    links = links or [newest]
    place_list = [
        link_index
        for link_index, raised_error in enumerate(links[1:-1], start=1)
        if line and _has_error_line(raised_error, line)
    ]
    links = links[place_list[0] :] if place_list and newest.step is None else links
    if newest.step is not None and newest.step != links[0].step:
        return ErrorChain(newest, newest)
    if newest.step is not None:  # Java names the cause last
        return ErrorChain(links[-1], links[0])
    return ErrorChain(
        links[0], links[-1], is_handled=any(link.is_handled for link in links[1:])
    )


def begins_it(
    chain: ErrorChain, root: FailureKind | None, last: FailureKind | None
) -> bool:
    """Return whether the cause of the failure is the first error of a chain; if not, it
    is the last error.

    Args:
        root: class of the first error by its words; None if they show none.
        last: class of the last error.
    """
    if not chain.is_handled or _is_masked(chain, last):
        return True
    is_expected = root in _EXPECTED or (root is None and last is not None)
    is_expected |= root == FailureKind.NETWORK and last in _OF_SERVICES
    return not chain.root.is_own and not is_expected and root != last


def _is_masked(chain: ErrorChain, last: FailureKind | None) -> bool:
    """Return whether an except or a finally block raised the last error by accident: by
    a mistake in its own code, or while closing what the first error left open."""
    if (
        last is not None
        or chain.root.lines[0].split(":")[0] == chain.last.lines[0].split(":")[0]
    ):
        return False
    if chain.last.is_of_cleaning or _UNNAMED.match(chain.last.lines[0]) is not None:
        return True
    is_mistake = _MISTAKEN.match(chain.last.lines[0]) is not None
    return is_mistake and _TRIED.match(chain.root.lines[0]) is None


def quote_of(chain: ErrorChain, *, root_first: bool, line: str = "") -> str:
    """Return both errors of a chain in one line of text.

    Args:
        root_first: the first error of the chain is quoted first.
        line: a line that shows the class of one of the errors, if it is not the first
            line of that error.
    """
    root, last_text = _error_text(chain.root, line), _error_text(chain.last, line)
    if root in last_text or (last_text in root and not root_first):
        return quoted(last_text)
    if last_text in root:
        return quoted(root)
    if not root_first:
        return f"{quoted(last_text)}; before it: {quoted(root)}"
    return f"{quoted(root)}; {'then' if chain.is_handled else 'it led to'}: {quoted(last_text)}"


def quoted(text: str) -> str:
    """Return the text in at most LINE_CHARACTERS; of a longer text, its beginning and
    its end."""
    if len(text) <= LINE_CHARACTERS:
        return text
    head = LINE_CHARACTERS - END_CHARACTERS - len(" ... ")
    return f"{text[:head]} ... {text[-END_CHARACTERS:]}"


def with_earlier(quote: str, raised: Sequence[Raised], chain: ErrorChain) -> str:
    """Return the quote with an earlier error appended. The program survived that error,
    but it may have led to the last one. The quote is unchanged if there is no earlier
    error, or there are more than MOST_EARLIER."""
    said_texts = {_error_text(chain.root, ""), _error_text(chain.last, "")}
    previous_errors = dict.fromkeys(
        _error_text(raised_error, "")
        for raised_error in raised
        if raised_error.chain < chain.last.chain
        and not raised_error.is_wrapper
        and not raised_error.is_of_thread
    )
    earlier = [
        text for text in previous_errors if text not in said_texts and text not in quote
    ]
    if not earlier or len(previous_errors) > MOST_EARLIER:
        return quote
    return f"{quote}; earlier in its log: {quoted(earlier[-1])}"


def has_line(chain: ErrorChain, line: str) -> bool:
    """Return whether the line belongs to the first or the last error of the chain."""
    return _has_error_line(chain.root, line) or _has_error_line(chain.last, line)


def _has_error_line(one: Raised, line: str) -> bool:
    return any(line.startswith(own_line) for own_line in one.lines)


def _error_text(one: Raised, line: str) -> str:
    return (
        (line if line and _has_error_line(one, line) else message(one.lines))
        .removeprefix("Caused by: ")
        .removeprefix("[cause]: ")
    )
