"""Waiting gangs, those that are alike together: what the first of a group is refused, all are.

A head keeps them from pass to pass, so that a pass costs what changes and not what waits.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from itertools import count

from corral.domain.ids import JobId
from corral.schedule.waiting import Waiting

Order = tuple[tuple[int, int], int]  # the gang's own, and which of equals was put first


def _order(entry: tuple[Order, Waiting]) -> Order:
    return entry[0]


class Groups:
    """Each group is a list in the order of age. No group is empty."""

    def __init__(self, waiting: Iterable[Waiting] = ()) -> None:
        self._numbers = count()
        self._entries: dict[JobId, tuple[Order, Waiting]] = {}
        self._groups: dict[tuple[object, ...], list[tuple[Order, Waiting]]] = {}
        self._apart: Counter[str] = Counter()
        self._shunned: Set[str] = frozenset()
        for gang in waiting:
            self.put(gang)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, gang: Waiting) -> None:
        """It waits from now on; whatever was known of the job before is forgotten."""
        self.drop(gang.job)
        entry = ((gang.order, next(self._numbers)), gang)
        self._entries[gang.job] = entry
        self._apart.update(gang.place.apart_from)
        insort(self._groups.setdefault(self._kind(gang), []), entry, key=_order)

    def drop(self, job: JobId) -> None:
        """It waits no longer, if it did."""
        entry = self._entries.pop(job, None)
        if entry is None:
            return
        self._apart.subtract(entry[1].place.apart_from)
        kind = self._kind(entry[1])
        group = self._groups[kind]
        del group[bisect_left(group, entry[0], key=_order)]
        if not group:
            del self._groups[kind]

    def get(self, job: JobId) -> Waiting | None:
        entry = self._entries.get(job)
        return None if entry is None else entry[1]

    def apart_from(self) -> Set[str]:
        """Names of others that some gang wants to be apart from."""
        return {name for name, gangs in self._apart.items() if gangs > 0}

    def tell_apart(self, shunned: Set[str]) -> None:
        """Gangs of these names are like no others: some job wants to be apart from them."""
        if shunned == self._shunned:
            return
        self._shunned = frozenset(shunned)
        self._groups = {}
        for entry in sorted(self._entries.values(), key=_order):
            self._groups.setdefault(self._kind(entry[1]), []).append(entry)

    def __iter__(self) -> Iterator[list[Waiting]]:
        """The groups, each a list of its own."""
        for group in self._groups.values():
            yield [gang for _, gang in group]

    def _kind(self, gang: Waiting) -> tuple[object, ...]:
        kin = gang.kin if gang.kin in self._shunned else ""
        return (*gang.likeness, gang.queue, gang.user, gang.priority, gang.preemptible,
                gang.array, gang.array_limit, kin)  # fmt: skip
