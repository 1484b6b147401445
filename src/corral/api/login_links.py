"""Links that open the pages: each lets in once, and for a short while."""

from dataclasses import dataclass, field
from typing import Final

from corral.domain.errors import Conflict
from corral.domain.ids import TokenId

_MOST: Final = 10_000


@dataclass(slots=True)
class LogInLinks:
    """Log-in links of this head, until it ends: from the id of a link's token to the
    end of the token that made it. Nothing is stored; an unknown link is valid only
    until it expires."""

    _made: dict[TokenId, float | None] = field(default_factory=dict)
    _used: dict[TokenId, None] = field(default_factory=dict)

    def made(self, link: TokenId, expires_at: float | None) -> None:
        self._made[link] = expires_at
        _evict_oldest_links(self._made)

    def is_unused(self, link: TokenId) -> bool:
        """Return whether this token is a link of this head that has not been used
        yet."""
        return link in self._made

    def use(self, link: TokenId) -> bool:
        """Whether this token is a link, which is used up by this. Raises: Conflict when
        it was."""
        if link in self._used:
            raise Conflict("this link was used already", hint="get another: corral ui")
        if link not in self._made:
            return False
        self._used[link] = None
        _evict_oldest_links(self._used)
        return True

    def end_of(self, link: TokenId) -> float | None:
        """Return the latest end of the session that the link opens."""
        return self._made.pop(link, None)


def _evict_oldest_links(
    kept: dict[TokenId, float | None] | dict[TokenId, None],
) -> None:
    while len(kept) > _MOST:
        del kept[next(iter(kept))]
