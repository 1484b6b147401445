"""Log-in links that open the web pages. Each link works once, and only for a short
time."""

from dataclasses import dataclass, field
from typing import Final

from corral.domain.errors import Conflict
from corral.domain.ids import TokenId

_MOST: Final = 10_000


@dataclass(slots=True)
class LogInLinks:
    """Log-in links that this head has made, in memory. The expiry of the token that
    made a link is kept by the id of the link's token. Nothing is stored; a link that
    this head does not know is valid only until it expires."""

    _made: dict[TokenId, float | None] = field(default_factory=dict)
    _used: dict[TokenId, None] = field(default_factory=dict)

    def made(self, link: TokenId, expires_at: float | None) -> None:
        self._made[link] = expires_at
        _evict_oldest_links(self._made)

    def is_unused(self, link: TokenId) -> bool:
        """Return whether this token is a link that this head has made and that was not
        used yet."""
        return link in self._made

    def use(self, link: TokenId) -> bool:
        """Use up the log-in link. Return whether the token is a link of this head.

        Raises: Conflict if the link was used already.
        """
        if link in self._used:
            raise Conflict(
                "this log-in link has already been used",
                hint="get a new link: corral ui",
            )
        if link not in self._made:
            return False
        self._used[link] = None
        _evict_oldest_links(self._used)
        return True

    def end_of(self, link: TokenId) -> float | None:
        """Return the latest end of the session that the link opens; None if there is no
        limit."""
        return self._made.pop(link, None)


def _evict_oldest_links(
    kept: dict[TokenId, float | None] | dict[TokenId, None],
) -> None:
    while len(kept) > _MOST:
        del kept[next(iter(kept))]
