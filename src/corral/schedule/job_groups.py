"""Waiting gangs, grouped by equal requests: if the first gang of a group finds no room,
neither does any other of the group.

A head keeps the groups from pass to pass, so that the cost of a pass depends on what
changes, not on the number of waiting gangs.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import count
from math import ceil, log

from corral.domain.ids import JobId
from corral.schedule.prediction.runtime_model import level_of
from corral.schedule.waiting import Waiting

Order = tuple[tuple[int, int], int]  # the gang's own, and which of equals was put first


class Groups:
    """Waiting gangs in groups. The gangs of a group have equal requests and are sorted
    by age, the oldest first. No group is empty."""

    def __init__(self, waiting: Iterable[Waiting] = ()) -> None:
        self._numbers = count()
        self._gangs: dict[JobId, Waiting] = {}
        self._orders: dict[JobId, Order] = {}
        self._groups: dict[tuple[object, ...], list[Waiting]] = {}
        self._apart: Counter[str] = Counter()
        self._shunned: Set[str] = frozenset()
        for gang in waiting:
            self.put(gang)

    def __len__(self) -> int:
        return len(self._gangs)

    def __iter__(self) -> Iterator[Sequence[Waiting]]:
        return iter(self._groups.values())

    def runs(self, alone: Set[JobId]) -> Iterator[Sequence[Waiting]]:
        """Yield the groups of waiting gangs. Each gang of a job in `alone` is yielded
        as a separate group."""
        for gangs in self:
            if alone and any(gang.job in alone for gang in gangs):
                yield from ([gang] for gang in gangs if gang.job in alone)
                gangs = [gang for gang in gangs if gang.job not in alone]
            if gangs:
                yield gangs

    def put(self, gang: Waiting) -> None:
        """Add the waiting gang to its group. It replaces an earlier entry of the same
        job."""
        self.drop(gang.job)
        self._gangs[gang.job] = gang
        self._orders[gang.job] = (gang.order, next(self._numbers))
        self._apart.update(gang.place.apart_from)
        insort(
            self._groups.setdefault(self._kind(gang), []), gang, key=self._gang_order
        )

    def drop(self, job: JobId) -> None:
        """Remove the job from the waiting gangs, if it is one of them."""
        gang = self._gangs.pop(job, None)
        if gang is None:
            return
        self._apart.subtract(gang.place.apart_from)
        kind = self._kind(gang)
        group = self._groups[kind]
        del group[bisect_left(group, self._orders[job], key=self._gang_order)]
        del self._orders[job]
        if not group:
            del self._groups[kind]

    def get(self, job: JobId) -> Waiting | None:
        return self._gangs.get(job)

    def apart_from(self) -> Set[str]:
        """Return all names of jobs from which some waiting gang wants to be kept apart."""
        return {name for name, gangs in self._apart.items() if gangs > 0}

    def tell_apart(self, shunned: Set[str]) -> None:
        """Put gangs whose name is in `shunned` into separate groups, because some job
        must be kept apart from them."""
        if shunned == self._shunned:
            return
        self._shunned = frozenset(shunned)
        self._groups = {}
        for gang in sorted(self._gangs.values(), key=self._gang_order):
            self._groups.setdefault(self._kind(gang), []).append(gang)

    def _gang_order(self, gang: Waiting) -> Order:
        return self._orders[gang.job]

    def _kind(self, gang: Waiting) -> tuple[object, ...]:
        kin = gang.kin if gang.kin in self._shunned else ""
        return (
            gang.likeness,
            gang.queue,
            gang.user,
            gang.priority,
            gang.preemptible,
            gang.array,
            gang.array_limit,
            kin,
            level_of(gang.served_seconds),
            gang.stem,
            gang.limit_seconds,
            _duration_bucket(gang.holds_seconds),
            gang.stop_seconds,
        )


def _duration_bucket(seconds: float | None) -> int:
    """Return a number for the duration, so that gangs of similar duration share a
    group. Buckets grow by steps of a tenth. Durations matter because reserved capacity
    may be used only by jobs that end before the reservation starts."""
    return 0 if seconds is None else 1 + ceil(log(1.0 + seconds, 1.1))
