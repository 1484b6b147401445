"""Division of a node's GPUs between Corral and the other programs of its Ray cluster.
Pure.

Corral gives ranks only GPUs that it has reserved in Ray's accounting. It reserves all
GPUs that no other program wants, and releases idle ones when a program of Ray waits
that could run on them.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from corral.domain.desired_state import DesiredState
from corral.domain.observed_state import AttemptKey, NodeFacts, Phase

# until the head knows that it may not place there: beats and ticks
LEAVE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpu:
    """A GPU that is reserved for Corral. `number`: the number of its reservation.
    `leaving_since`: since when it is about to be released; None if it is not."""

    number: int
    leaving_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChanges:
    """Changes to the reserved GPUs. `take`: how many more GPUs to reserve. `let_go`:
    the indices of the GPUs to release. `held`: the existing reservations with their new
    state, without the GPUs still to be reserved."""

    held: Mapping[int, HeldGpu]
    take: int = 0
    let_go: tuple[int, ...] = ()


@dataclass(slots=True)
class GpuUsers:
    """GPUs of a node that are in use by attempts, as far as the head and the node know."""

    _seats: dict[AttemptKey, tuple[int, ...]] = field(default_factory=dict)
    _wanted: frozenset[AttemptKey] = frozenset()
    _seen: frozenset[AttemptKey] = frozenset()

    def want(self, wanted: DesiredState) -> None:
        for launch in wanted.run:
            self._seats[launch.key] = launch.seat.gpus
        runs = {launch.key for launch in wanted.run}
        self._wanted = frozenset(runs | {stop.key for stop in wanted.stop})
        self._drop_stale_seats()

    def see(self, word: NodeFacts) -> None:
        final_phases = (Phase.ENDED, Phase.REFUSED)
        self._seen = frozenset(
            attempt.key for attempt in word.seen if attempt.phase not in final_phases
        )
        self._drop_stale_seats()

    def busy(self, held: AbstractSet[int]) -> set[int]:
        """Return the indices of the GPUs in use by attempts; all of `held` if there is
        an attempt whose GPUs are unknown."""
        attempt_keys = self._wanted | self._seen
        if any(key not in self._seats for key in attempt_keys):
            return set(held)
        return {index for key in attempt_keys for index in self._seats[key]}

    def _drop_stale_seats(self) -> None:
        attempt_keys = self._wanted | self._seen
        self._seats = {
            key: gpus for key, gpus in self._seats.items() if key in attempt_keys
        }


def moves(
    held: Mapping[int, HeldGpu],
    busy: AbstractSet[int],
    *,
    free: int,
    waiting: Sequence[int],
    now: float,
) -> HoldChanges:
    """Return the changes to the reservations on one node. Corral has reserved the GPUs
    `held` there, by index, `busy` are the indices in use, and `free` is the number of
    GPUs that Ray still has.

    `waiting`: how many GPUs each waiting program of Ray wants. A GPU that is about to
    be released is released after LEAVE_SECONDS if it is still idle; it stays reserved
    if no program waits any more.
    """
    idle = {index for index in held if index not in busy}
    wanted_gpus = sum(_served_requests(waiting, free + len(idle))) - free
    leaving = [index for index in held if held[index].leaving_since is not None]
    if wanted_gpus <= 0:
        kept_gpus = {
            index: replace(held_gpu, leaving_since=None)
            for index, held_gpu in held.items()
        }
        served = bool(_served_requests(waiting, free))
        return HoldChanges(held=kept_gpus, take=0 if served else free)
    chosen = sorted(idle, key=lambda index: (index not in leaving, -index))[
        :wanted_gpus
    ]
    updated_gpus = {
        index: replace(
            held_gpu,
            leaving_since=_release_start(held_gpu, now) if index in chosen else None,
        )
        for index, held_gpu in held.items()
    }
    released_gpus = tuple(
        index
        for index in chosen
        if now - _release_start(held[index], now) >= LEAVE_SECONDS
    )
    return HoldChanges(
        held={
            i: held_gpu
            for i, held_gpu in updated_gpus.items()
            if i not in released_gpus
        },
        let_go=released_gpus,
    )


def offered(held: Mapping[int, HeldGpu]) -> frozenset[int]:
    """Return the indices of the reserved GPUs on which work may be placed, without
    those about to be released."""
    return frozenset(
        index for index, held_gpu in held.items() if held_gpu.leaving_since is None
    )


def _release_start(one: HeldGpu, now: float) -> float:
    return now if one.leaving_since is None else one.leaving_since


def _served_requests(waiting: Sequence[int], room: int) -> list[int]:
    """Return the waiting requests that `room` GPUs can serve, in their order; too large
    requests are skipped."""
    served = []
    for gpus in waiting:
        if gpus <= room:
            served.append(gpus)
            room -= gpus
    return served
