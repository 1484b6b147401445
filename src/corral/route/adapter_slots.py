"""Adapters of one replica: which are loaded, which may be unloaded for another one, and
what it costs to have one there."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

# A new load takes the room of another adapter and slows the engine down, so it costs more
# than its own time. Requests for an adapter that is being loaded wait for that load.
LOAD_PRICE: Final = 3.0
FIRST_BACKOFF_SECONDS: Final = 2.0
MOST_BACKOFF_SECONDS: Final = 300.0


class AdapterSlots:
    """Adapters of one replica.

    An adapter that requests use is never unloaded. Of the others, the least recently used
    one is.

    Args:
        most: Adapters that the replica may have loaded.
    """

    __slots__ = ("_failed", "_loaded", "_loading", "_stale", "_used", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._loaded: OrderedDict[str, None] = OrderedDict()  # the newest use last
        self._loading: dict[str, float] = {}  # since when
        self._used: dict[str, int] = {}  # by requests
        self._failed: dict[str, tuple[float, float]] = {}  # delay, and until when
        self._stale: set[str] = set()  # loaded, with other weights or for nothing

    def is_loaded(self, name: str) -> bool:
        return name in self._loaded

    @property
    def loaded(self) -> list[str]:
        """Names of the loaded adapters, the least recently used first."""
        return [*self._loaded]

    def price_seconds(self, name: str, now: float, load_seconds: float) -> float | None:
        """Return the seconds that a request for an adapter costs here on top of its work;
        None if it cannot be had now.

        Args:
            load_seconds: Time that a load takes.
        """
        if name in self._loaded:
            return 0.0
        since = self._loading.get(name)
        if since is not None:
            return max(0.0, since + load_seconds - now)
        if self.retry_seconds(name, now) or self._victims() is None:
            return None
        return LOAD_PRICE * load_seconds

    def retry_seconds(self, name: str, now: float) -> float:
        """Return the seconds for which a failed load is not tried again."""
        _, until = self._failed.get(name, (0.0, 0.0))
        return max(0.0, until - now)

    def use(self, name: str) -> None:
        """Count a request for an adapter, which has to be released."""
        self._used[name] = self._used.get(name, 0) + 1
        if name in self._loaded:
            self._loaded.move_to_end(name)

    def release(self, name: str) -> None:
        """Count the end of a request for an adapter."""
        count = self._used.get(name, 0) - 1
        if count > 0:
            self._used[name] = count
        else:
            self._used.pop(name, None)

    def begin_load(self, name: str, now: float) -> list[str]:
        """Begin to load an adapter. Return those that are to be unloaded before it.

        Raises: ValueError if there is no room.
        """
        victims = self._victims()
        if victims is None:
            raise ValueError(f"there is no room for {name}")
        for victim in victims:
            self._loaded.pop(victim, None)
        unused = [name for name in sorted(self._stale) if name not in self._used]
        if name in self._stale and name not in unused:
            unused.append(name)
        self._stale.difference_update(unused)
        self._loading[name] = now
        return [*unused, *victims]

    def _victims(self) -> list[str] | None:
        """Return the adapters to unload for one more; None if too many are in use."""
        excess = len(self._loaded) + len(self._loading) + 1 - self.most
        if excess <= 0:
            return []
        unused = [name for name in self._loaded if name not in self._used]
        return unused[:excess] if len(unused) >= excess else None

    def take_excess(self) -> list[str]:
        """Return the adapters that are to be unloaded, because the engine has listed
        more of them than it may have."""
        excess = len(self._loaded) + len(self._loading) - self.most
        unused = [name for name in self._loaded if name not in self._used]
        victims = unused[: max(0, excess)]
        for victim in victims:
            del self._loaded[victim]
        return victims

    def note_loaded(self, name: str) -> None:
        """Count an adapter as loaded."""
        self._loading.pop(name, None)
        self._failed.pop(name, None)
        self._stale.discard(name)
        self._loaded[name] = None
        self._loaded.move_to_end(name)

    def note_listed(self, name: str) -> None:
        """Count an adapter that the engine lists as loaded; its use is not known."""
        if name not in self._loading and name not in self._loaded:
            self._loaded[name] = None
            self._loaded.move_to_end(name, last=False)

    def note_stale(self, name: str) -> None:
        """Count an adapter that the engine has with other weights."""
        if name not in self._loading:
            self._loaded.pop(name, None)
            self._stale.add(name)

    def note_failed(self, name: str, now: float) -> None:
        """Count a failed load: the next one waits for longer each time."""
        self._loading.pop(name, None)
        delay, _ = self._failed.get(name, (FIRST_BACKOFF_SECONDS / 2, 0.0))
        delay = min(2 * delay, MOST_BACKOFF_SECONDS)
        self._failed[name] = (delay, now + delay)

    def forget(self, name: str) -> None:
        """Count an adapter as not loaded: the engine does not have it any more."""
        self._loaded.pop(name, None)

    def replace(self, names: Iterable[str]) -> None:
        """Count adapters as out of date: each is unloaded before another load."""
        for name in names:
            self._failed.pop(name, None)
            if name in self._loaded:
                del self._loaded[name]
                self._stale.add(name)
