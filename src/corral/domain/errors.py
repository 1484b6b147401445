"""Three kinds of error: the caller's (Refusal), the world's (Trouble), and ours
(Bug)."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar, Final

LONGEST: Final = 80  # letters of a name that a message repeats


class CorralError(Exception):
    """Base of all errors that Corral raises on purpose. `hint`: the next thing to do, a
    command if there is one."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Refusal(CorralError):
    """The caller's mistake or limit; nothing was changed. Its code never changes once
    released."""

    code = "refused"


class Trouble(CorralError):
    """The world's fault; worth another try within a bound."""

    code = "trouble"


class Bug(CorralError):
    """Ours. What was being decided is kept for replay; nothing is guessed."""

    code = "bug"


class SpecInvalid(Refusal):
    """The spec says something that cannot be."""

    code = "spec_invalid"


class NotFound(Refusal):
    """Nothing here has that name."""

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
    """The job has ended and is not kept any more, or its number was never a job's."""

    code = "forgotten"


class Conflict(Refusal):
    """It cannot be done in the state things are in."""

    code = "conflict"


class Unauthorised(Refusal):
    """No token, or one that this cluster does not know.

    `about` names the token and its user where they are known; it is for the audit log
    alone.
    """

    code = "unauthorised"
    about: str = ""


class TokenRevoked(Unauthorised):
    """The token was known, and has been taken back."""

    code = "token_revoked"


class TokenExpired(Unauthorised):
    """The token's time is over."""

    code = "token_expired"


class TokenUsed(Unauthorised):
    """A join token has let in as many machines as it was made for."""

    code = "token_used"


class UserDisabled(Unauthorised):
    """The user of the token may ask for nothing now."""

    code = "user_disabled"


class WrongHead(Refusal):
    """The process that answers at the head's address is not the head that was meant."""

    code = "wrong_head"


class InsecureHead(Refusal):
    """A token would travel in clear to another machine."""

    code = "insecure_head"


class Forbidden(Refusal):
    """The token is known, but may not do this."""

    code = "forbidden"


class TooLarge(Refusal):
    """More than this cluster takes in at once."""

    code = "too_large"


class Unsupported(Refusal):
    """A valid request that this engine or this cluster cannot grant."""

    code = "unsupported"


class CannotFit(Refusal):
    """No node that is here, or is known to come, could ever hold it."""

    code = "cannot_fit"


class NotShared(Refusal):
    """A path that must be seen from several nodes is not proven shared."""

    code = "not_shared"


class Unreachable(Trouble):
    """The head does not answer."""

    code = "unreachable"


class StoreTrouble(Trouble):
    """The store cannot be read or written now."""

    code = "store_trouble"


class TermLost(Trouble):
    """Another head leads now: this one may write no more."""

    code = "term_lost"


class NoLeader(Trouble):
    """None of several heads leads for the moment."""

    code = "no_leader"


class IllegalMove(Bug):
    """A job was asked to make a move that its table does not have."""

    code = "illegal_move"


class InvariantBroken(Bug):
    """A rule that always holds did not. Placement stops; cancels go on working."""

    code = "invariant_broken"


class Unrecordable(InvariantBroken):
    """Rows of a commit that no store can hold, each with the reason; nothing was
    written."""

    code = "unrecordable"

    def __init__(self, rows: Sequence[tuple[object, str]]) -> None:
        first_fault = rows[0][1] if rows else ""
        rest_text = f"; so are {len(rows) - 1} more rows" if len(rows) > 1 else ""
        super().__init__(f"a row cannot be recorded: {first_fault}{rest_text}")
        self.rows = tuple(rows)
