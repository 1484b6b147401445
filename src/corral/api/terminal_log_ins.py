"""Current log-ins of terminals. They are held in memory, in a limited number, and are
lost when the head ends."""

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from corral.api.auth import token_digest
from corral.api.errors import TooMany
from corral.domain.terminal_log_in import (
    CODE_LENGTH,
    CODE_LETTERS,
    POLL_SECONDS,
    TerminalLogIn,
    expired,
)
from corral.ingress.addresses import network_of
from corral.ingress.buckets import TokenBuckets
from corral.ports.clock import Clock

TERMINALS_MOST: Final = 1_000  # under way at once
NETWORK_MOST: Final = 20  # of them from one network
BEGIN_RATE: Final = 0.2  # a second, from one network
BEGIN_BURST: Final = 10
POLL_BURST: Final = 3
_WAIT: Final = "wait a minute, then run: corral login --oidc"


def _fresh_code() -> str:
    return "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))


@dataclass(slots=True, kw_only=True)
class TerminalLogIns:
    """Log-ins of terminals by their public id. Because a log-in can begin without a
    token, the number and the rate of log-ins are limited for each network that they
    come from."""

    clock: Clock
    fresh_code: Callable[[], str] = _fresh_code
    _by_id: dict[str, TerminalLogIn] = field(default_factory=dict)
    _begins: TokenBuckets = field(init=False)
    _polls: TokenBuckets = field(init=False)

    def __post_init__(self) -> None:
        clock = self.clock.monotonic
        self._begins = TokenBuckets(rate=BEGIN_RATE, burst=BEGIN_BURST, clock=clock)
        self._polls = TokenBuckets(
            rate=1.0 / POLL_SECONDS, burst=POLL_BURST, clock=clock
        )

    def begin(self, source: str) -> tuple[str, TerminalLogIn]:
        """Begin a log-in of a terminal. Return the terminal's secret, and the log-in to
        be confirmed. Raises: TooMany."""
        now = self.clock.wall()
        self._by_id = {
            id: terminal_log_in
            for id, terminal_log_in in self._by_id.items()
            if not terminal_log_in.is_over(now)
        }
        network = network_of(source)
        of_network = Counter(
            network_of(terminal_log_in.source)
            for terminal_log_in in self._by_id.values()
        )[network]
        if of_network >= NETWORK_MOST or len(self._by_id) >= TERMINALS_MOST:
            raise TooMany(
                "too many log-ins of terminals wait for their confirmation", hint=_WAIT
            )
        wait = self._begins.take(network)
        if wait > 0:
            raise TooMany(
                "too many log-ins of terminals were started from this address",
                hint=_WAIT,
                retry_seconds=wait,
            )
        secret = secrets.token_urlsafe(32)
        new_log_in = TerminalLogIn(
            id=secrets.token_hex(8),
            code=self.fresh_code(),
            secret_sha256=token_digest(secret),
            source=source,
            begun_at=now,
        )
        self._by_id[new_log_in.id] = new_log_in
        return secret, new_log_in

    def find(self, id: str) -> TerminalLogIn:
        """Return the log-in with this id. Raises: LogInExpired."""
        terminal_log_in = self._by_id.get(id)
        if terminal_log_in is None or terminal_log_in.is_over(self.clock.wall()):
            raise expired()
        return terminal_log_in

    def keep(self, changed: TerminalLogIn) -> None:
        """Replace the log-in by its changed state. If the terminal has fetched the
        log-in meanwhile, nothing is kept."""
        if changed.id in self._by_id:
            self._by_id[changed.id] = changed

    def take(self, secret: str) -> TerminalLogIn:
        """Remove the log-in of the terminal that has this secret, and return it.
        `give_back` undoes the removal.

        Raises: TooMany if the terminal polls too often, LogInExpired.
        """
        digest = token_digest(secret)
        terminal_log_in = next(
            (
                log_in
                for log_in in self._by_id.values()
                if log_in.secret_sha256 == digest
            ),
            None,
        )
        if terminal_log_in is None:
            raise expired()
        wait = self._polls.take(terminal_log_in.id)
        if wait > 0:
            hint = f"send this request only once in {POLL_SECONDS:.0f} s"
            raise TooMany(
                "the terminal requests the state of its log-in too often",
                hint=hint,
                retry_seconds=wait,
            )
        del self._by_id[terminal_log_in.id]
        return terminal_log_in

    def give_back(self, log_in: TerminalLogIn) -> None:
        """Undo `take`: keep the log-in again, so that the terminal can poll for it
        later."""
        self._by_id[log_in.id] = log_in
