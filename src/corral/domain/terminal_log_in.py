"""Log-in of a terminal through a browser: it is begun by the terminal, confirmed or
refused in the browser, and its token is fetched once by the terminal.

The person who logs in at the provider types the code that their terminal shows. So a
link alone logs in no terminal, in particular not the terminal of a person who sent the
link.
Source: RFC 8628, section 5.4 (remote phishing); the head is the OAuth client here.
"""

from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import Final

from corral.domain.errors import CorralError, Forbidden, Refusal
from corral.domain.ids import UserName
from corral.domain.users import Role

TERMINAL_SECONDS: Final = 600.0  # within which the log-in is confirmed and fetched
POLL_SECONDS: Final = 2.0
# RFC 8628, section 6.1: no words, no look-alikes
CODE_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
CODE_LENGTH: Final = 8
ATTEMPTS_MOST: Final = 5
_AGAIN: Final = "run again: corral login --oidc"


class LogInExpired(Refusal):
    """The log-in of a terminal was not confirmed in time, or is not known to this
    head."""

    code = "log_in_expired"


class LogInDenied(Forbidden):
    """The person who logged in at the provider refused the log-in of the terminal."""

    code = "log_in_denied"


class WrongCode(Forbidden):
    """The code is not the one that the terminal shows."""

    code = "wrong_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalPerson:
    """A user who has logged in at the provider. `source` is the address of the user's
    browser."""

    name: UserName
    role: Role
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalLogIn:
    """One log-in of a terminal.

    Args:
        id: Public name, part of the address that the browser opens.
        code: Letters that the terminal shows, without the hyphen.
        secret_sha256: Digest of the secret by which the terminal fetches its token.
        source: Address of the terminal.
        begun_at: Wall-clock seconds since 1970.
        wrong_codes: Number of wrong codes that were typed.
        person: User who typed the code.
        refusal: Reason why the log-in has failed.
    """

    id: str
    code: str
    secret_sha256: str
    source: str
    begun_at: float
    wrong_codes: int = 0
    person: TerminalPerson | None = None
    refusal: CorralError | None = None

    @property
    def shown_code(self) -> str:
        """Return the code in the form in which a terminal shows it."""
        half = CODE_LENGTH // 2
        return f"{self.code[:half]}-{self.code[half:]}"

    @property
    def is_waiting(self) -> bool:
        """Return whether the log-in is neither confirmed nor refused."""
        return self.person is None and self.refusal is None

    def is_over(self, now: float) -> bool:
        """Return whether the time limit of the log-in is over."""
        return now - self.begun_at >= TERMINAL_SECONDS

    def refused(self, why: CorralError) -> "TerminalLogIn":
        """Return the log-in as failed. A log-in that is already confirmed or failed is
        returned unchanged."""
        return replace(self, refusal=why) if self.is_waiting else self

    def denied(self, person: TerminalPerson) -> "TerminalLogIn":
        """Return the log-in as denied by the person in the browser."""
        return self.refused(
            LogInDenied(
                f"{person.name} refused this log-in in the browser", hint=_AGAIN
            )
        )

    def confirmed(self, person: TerminalPerson, typed: str) -> "TerminalLogIn":
        """Return the log-in with the person if the typed code is right, else with one
        more wrong code. After 5 wrong codes it has failed."""
        if not self.is_waiting:
            return self
        letters = "".join(letter for letter in typed.upper() if letter.isalnum())
        if compare_digest(letters.encode(), self.code.encode()):
            return replace(self, person=person)
        counted = replace(self, wrong_codes=self.wrong_codes + 1)
        if counted.wrong_codes < ATTEMPTS_MOST:
            return counted
        return counted.refused(
            WrongCode(
                f"{ATTEMPTS_MOST} wrong codes were typed in the browser", hint=_AGAIN
            )
        )

    def fetched_by(self, now: float) -> TerminalPerson | None:
        """Return the confirmed person, whose token the terminal may fetch now; None
        while the log-in is not confirmed yet.

        Raises: the refusal if the log-in has failed; LogInExpired if its time is over.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.is_over(now):
            raise expired()
        return self.person


def expired() -> LogInExpired:
    """Return the refusal of a log-in whose time is over, or that this head does not
    know."""
    minutes = TERMINAL_SECONDS / 60
    return LogInExpired(
        f"the log-in was not confirmed within {minutes:.0f} minutes, or the head was restarted",
        hint=_AGAIN,
    )
