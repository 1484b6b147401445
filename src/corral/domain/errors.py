"""The three kinds of errors: mistakes of the caller (Refusal), faults of the
environment (Trouble), and faults of Corral (Bug)."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar, Final

LONGEST: Final = 80  # letters of a name that a message repeats


class CorralError(Exception):
    """Base of all errors that Corral raises on purpose. `hint` is the next thing for
    the user to do, if possible a command."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def full_text(self) -> str:
        """Return the message with the hint, for a place that has one text."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class Refusal(CorralError):
    """Refusal because of the caller's mistake or limits; nothing was changed. Its code
    never changes once released."""

    code = "refused"


class Trouble(CorralError):
    """Fault of the environment, for which a bounded number of retries makes sense.
    `is_silence`: a system outside Corral gave no answer at all."""

    code = "trouble"

    def __init__(
        self, message: str, *, hint: str = "", is_silence: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_silence = is_silence


class Bug(CorralError):
    """A fault of Corral itself. Corral does not guess a result; it keeps the input of
    the decision, so that the fault can be reproduced."""

    code = "bug"


class SpecInvalid(Refusal):
    """The spec contains a value that is not valid."""

    code = "spec_invalid"


class NotFound(Refusal):
    """No object of this kind has that name."""

    code = "not_found"

    def __init__(
        self, kind: str, name: str, known: Sequence[str] = (), *, see: str = ""
    ) -> None:
        cased = {code.lower(): code for code in reversed(known)}
        near = get_close_matches(name.lower(), cased, n=1)
        hint = f"did you mean {cased[near[0]]}?" if near else ""
        listing = f"run: {see}" if see else ""
        super().__init__(
            f"there is no {kind} {_truncate_name(name)!r}",
            hint=" ".join(filter(None, (hint, listing))),
        )


def _truncate_name(name: str) -> str:
    return name if len(name) <= LONGEST else name[:LONGEST] + "..."


class NoSuchIndex(Refusal):
    """Refusal of an index: the job exists, but is not an array or has no such index."""

    code = "no_such_index"


class Forgotten(Refusal):
    """The job has ended and is not kept any more, or the number never belonged to a
    job."""

    code = "forgotten"


class Conflict(Refusal):
    """The request is not possible in the present state of its object."""

    code = "conflict"


class Unauthorised(Refusal):
    """The request has no token, or one that this cluster does not know.

    `about` names the token and its user if they are known. It is for the audit log
    only.
    """

    code = "unauthorised"
    about: str = ""


class TokenRevoked(Unauthorised):
    """The token was valid once, but has been revoked."""

    code = "token_revoked"


class TokenExpired(Unauthorised):
    """The token has expired."""

    code = "token_expired"


class TokenUsed(Unauthorised):
    """The join token has already admitted the number of machines that it was made for."""

    code = "token_used"


class UserDisabled(Unauthorised):
    """The user of the token is disabled and may make no request."""

    code = "user_disabled"


class WrongHead(Refusal):
    """The process that answers at the head's address is another head than the expected
    one."""

    code = "wrong_head"


class InsecureHead(Refusal):
    """The token would be sent unencrypted to another machine."""

    code = "insecure_head"


class Forbidden(Refusal):
    """The token is known, but does not allow this request."""

    code = "forbidden"


class TooLarge(Refusal):
    """The request is larger than this cluster accepts at once."""

    code = "too_large"


class Unsupported(Refusal):
    """A valid request that this engine or this cluster cannot grant."""

    code = "unsupported"


class CannotFit(Refusal):
    """No present node, and none that is known to come, could ever hold the job."""

    code = "cannot_fit"


class NotShared(Refusal):
    """A path that several nodes must share is not proven to be shared."""

    code = "not_shared"


class Unreachable(Trouble):
    """The head does not respond."""

    code = "unreachable"


class StoreTrouble(Trouble):
    """The store cannot be read or written now."""

    code = "store_trouble"


class TermLost(Trouble):
    """Another head leads now, so this head may not write any more."""

    code = "term_lost"


class NoLeader(Trouble):
    """There are several heads, but at the moment none of them leads."""

    code = "no_leader"


class IllegalMove(Bug):
    """A job was to be moved by an event that the table of state transitions does not
    allow in its present state."""

    code = "illegal_move"


class InvariantBroken(Bug):
    """A rule that must always hold does not hold. Placement stops; cancels still work."""

    code = "invariant_broken"


class Unrecordable(InvariantBroken):
    """Rows of a commit that no store can hold, each with its reason. Nothing of the
    commit was written."""

    code = "unrecordable"

    def __init__(self, rows: Sequence[tuple[object, str]]) -> None:
        first_fault = rows[0][1] if rows else ""
        rest_text = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
        super().__init__(f"a row cannot be stored: {first_fault}{rest_text}")
        self.rows = tuple(rows)
