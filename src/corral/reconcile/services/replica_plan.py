"""Replicas to make and to drain, so that a service has the number of replicas that it
wants, of one revision. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from corral.domain.service import ReplicaRow, Service
from corral.reconcile.services.replica_state import is_delayed

ROOM_SECONDS: Final = 60.0  # within which a new replica must find room
# within which a replica that starts is waited for, while a node is being drained
SLOW_START_SECONDS: Final = 600.0
# A replica that runs must be ready within this time: to load a large model takes minutes.
LONGEST_START_SECONDS: Final = 1800.0
# A replica that was ready is replaced after its probe has failed for this time.
FAILED_PROBE_SECONDS: Final = 120.0
# The same while most replicas fail: the fault is likely elsewhere, and may end by itself.
COMMON_FAILURE_SECONDS: Final = 600.0


class DrainCause(StrEnum):
    """Cause for which a replica is drained."""

    TOO_MANY = "too_many"
    OLD_REVISION = "old_revision"
    NODE_DRAINS = "node_drains"
    NO_ROOM = "no_room"  # for a replica of the new revision
    PROBE_FAILS = "probe_fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplica:
    """A replica that is not being drained.

    Args:
        is_placed: It has nodes.
        waits_since: Since when it waits for nodes (wall clock); None: it does not.
        failing_seconds: For how long its probe has failed since it was ready; None: it
            does not, or it is not known.
        starting_seconds: For how long it has run without having been ready, while its
            probe fails; None: it was ready, or it is not known.
    """

    row: ReplicaRow
    is_placed: bool
    waits_since: float | None = None
    failing_seconds: float | None = None
    starting_seconds: float | None = None

    @property
    def is_failing(self) -> bool:
        """Whether its probe fails, and it does not only start."""
        is_late = (self.starting_seconds or 0.0) >= LONGEST_START_SECONDS
        return self.failing_seconds is not None or is_late

    @property
    def failed_seconds(self) -> float:
        """Return for how long its probe has failed; 0 if it is not failing."""
        if not self.is_failing:
            return 0.0
        return self.failing_seconds or self.starting_seconds or 0.0

    @property
    def end_order(self) -> tuple[bool, bool, int]:
        """Return the key by which replicas are drained: first those without nodes, then
        those that are not ready, then the newest."""
        return self.is_placed, self.row.is_ready, -self.row.number


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """Replicas to drain, to put to sleep and to wake, by number, and the revision of
    each replica to make. `gives_way`: one of those drained makes room for the new
    revision."""

    sleeps: tuple[int, ...] = ()
    wakes: tuple[int, ...] = ()
    drains: tuple[tuple[int, DrainCause], ...] = ()
    makes: tuple[int, ...] = ()
    gives_way: bool = False


def plan_replicas(
    service: Service, live: Sequence[LiveReplica], now: float, *, is_draining: bool
) -> ReplicaPlan:
    """Return the next step towards `service.wanted` replicas of the revision that is to
    serve, and one of the revision on trial.

    A replica of an old revision, or on a node that is being drained, is drained once
    another one is ready in its place. There is at most one replica more than wanted,
    without those on such nodes.

    Args:
        live: Replicas that are not being drained.
        now: Wall clock, in seconds since 1970.
        is_draining: Other replicas are being drained.
    """
    planner = _Planner(service=service, now=now, is_draining=is_draining)
    planner.sort(live)
    planner.wake_sleepers()
    planner.put_surplus_to_sleep()
    planner.drain_sleepers()
    planner.drain_surplus()
    planner.drain_unready()
    planner.drain_replaced()
    planner.leave_nodes()
    planner.drain_failing()
    planner.make_room()
    planner.keep_limit()
    return ReplicaPlan(
        drains=tuple(planner.drains.items()),
        sleeps=tuple(planner.sleeps),
        wakes=tuple(planner.wakes),
        makes=tuple(planner.missing_revisions()),
        gives_way=planner.gives_way,
    )


@dataclass(slots=True, kw_only=True)
class _Planner:
    """Replicas in groups: `serving` are of the revision that is to serve, `old` of
    others, `leaving` are on nodes that are being drained, `tried` is of the revision
    on trial, and `sleepers` sleep. A replica that wakes is one that serves."""

    service: Service
    now: float
    is_draining: bool
    serving: list[LiveReplica] = field(default_factory=list)
    old: list[LiveReplica] = field(default_factory=list)
    leaving: list[LiveReplica] = field(default_factory=list)
    tried: list[LiveReplica] = field(default_factory=list)
    sleepers: list[LiveReplica] = field(default_factory=list)
    sleeps: list[int] = field(default_factory=list)
    wakes: list[int] = field(default_factory=list)
    drains: dict[int, DrainCause] = field(default_factory=dict)
    gives_way: bool = False

    def sort(self, live: Sequence[LiveReplica]) -> None:
        """Put each replica into its group, those first that are drained first."""
        for replica in sorted(live, key=lambda replica: replica.end_order):
            if replica.row.is_sleeping:
                group = self.sleepers
            elif replica.row.leaving_since is not None:
                group = self.leaving
            elif replica.row.revision == self.service.on_trial:
                group = self.tried
            elif replica.row.revision == self.service.goal:
                group = self.serving
            else:
                group = self.old
            group.append(replica)

    def _drain(self, replica: LiveReplica, cause: DrainCause) -> None:
        self.drains[replica.row.number] = cause

    def _drain_first(self, group: list[LiveReplica], cause: DrainCause) -> None:
        self._drain(group.pop(0), cause)

    def wake_sleepers(self) -> None:
        """Wake sleeping replicas of the revision that is to serve, while too few
        serve: first those that lend nothing."""
        useful = sorted(
            (
                sleeper
                for sleeper in self.sleepers
                if sleeper.row.revision == self.service.goal
            ),
            key=_wake_order,
        )
        for replica in useful[: max(0, self.service.wanted - len(self.serving))]:
            self.sleepers.remove(replica)
            self.serving.append(replica)
            self.wakes.append(replica.row.number)

    def put_surplus_to_sleep(self) -> None:
        """Put ready replicas to sleep that are more than wanted, as many as are to
        sleep."""
        room = self.service.sleeping - len(self.sleepers)
        ready = [replica for replica in self.serving if replica.row.is_ready]
        surplus = len(ready) - self.service.wanted
        if not self.service.spec_of(self.service.goal).may_sleep:
            return
        for replica in ready[: max(0, min(room, surplus))]:
            self.serving.remove(replica)
            self.sleepers.append(replica)
            self.sleeps.append(replica.row.number)

    def drain_sleepers(self) -> None:
        """Drain sleeping replicas that are too many, of an old revision, or on a node
        that is being drained."""
        for replica in list(self.sleepers):
            row = replica.row
            if row.number in self.sleeps:
                continue
            if row.leaving_since is not None:
                cause = DrainCause.NODE_DRAINS
            elif row.revision != self.service.goal:
                cause = DrainCause.OLD_REVISION
            elif len(self.sleepers) > self.service.sleeping:
                cause = DrainCause.TOO_MANY
            else:
                continue
            self.sleepers.remove(replica)
            self._drain(replica, cause)

    @property
    def _missing_sleepers(self) -> int:
        """Replicas that are made so that they sleep, once no revision is on trial."""
        if self.service.trial is not None:
            return 0
        return max(0, self.service.spec.sleeping - len(self.sleepers))

    @property
    def _wanted(self) -> int:
        """Replicas that are awake: those that serve, and those that are to sleep once
        they are ready."""
        most = self.service.spec.max_replicas
        awake = self.service.wanted + self._missing_sleepers
        return max(self.service.wanted, min(awake, most - len(self.sleepers)))

    def drain_surplus(self) -> None:
        while len(self.serving) > self._wanted:
            self._drain_first(self.serving, DrainCause.TOO_MANY)

    def drain_unready(self) -> None:
        """Drain those to be replaced that serve nothing."""
        for group, cause in self._replaced_groups():
            while group and not group[0].row.is_ready:
                self._drain_first(group, cause)

    def _replaced_groups(self) -> list[tuple[list[LiveReplica], DrainCause]]:
        return [
            (self.leaving, DrainCause.NODE_DRAINS),
            (self.old, DrainCause.OLD_REVISION),
        ]

    def drain_replaced(self) -> None:
        """Drain those to be replaced while enough others are ready."""
        ready = sum(replica.row.is_ready for replica in self.serving)
        surplus = ready + len(self.leaving) + len(self.old) - self.service.wanted
        for group, cause in self._replaced_groups():
            while group and surplus > 0:
                self._drain_first(group, cause)
                surplus -= 1

    def leave_nodes(self) -> None:
        """Drain replicas whose node has been draining for long, even if no other is
        ready yet."""
        limit = SLOW_START_SECONDS if self._is_starting() else ROOM_SECONDS
        for replica in list(self.leaving):
            since = replica.row.leaving_since
            if since is not None and self.now - since >= limit:
                self.leaving.remove(replica)
                self._drain(replica, DrainCause.NODE_DRAINS)

    def _is_starting(self) -> bool:
        return any(
            replica.is_placed and not replica.row.is_ready
            for replica in (*self.serving, *self.tried)
        )

    def drain_failing(self) -> None:
        """Drain one replica whose probe has failed for long. The next one is drained
        only after a replica in its place is ready: if that one fails too, to replace
        more of them does not help."""
        if self.is_draining or self.drains:
            return
        live = [*self.serving, *self.tried]
        failing = [replica for replica in live if replica.is_failing]
        placed = [replica for replica in live if replica.is_placed]
        is_common = len(failing) > max(1, len(placed) / 2)
        limit = COMMON_FAILURE_SECONDS if is_common else FAILED_PROBE_SECONDS
        longest = max(failing, key=lambda one: one.failed_seconds, default=None)
        if longest is None or longest.failed_seconds < limit:
            return
        if any(_is_awaited(replica) for replica in (live if is_common else placed)):
            return
        group = self.serving if longest in self.serving else self.tried
        group.remove(longest)
        self._drain(longest, DrainCause.PROBE_FAILS)

    def make_room(self) -> None:
        """Drain one old replica if a new one has found no room. The next one
        makes room only after the new one is ready."""
        if self.is_draining or self.drains or self._is_starting():
            return
        ready = [replica for replica in self.serving if replica.row.is_ready]
        gave_way_at = self.service.gave_way_at
        is_made_up_for = gave_way_at is None or any(
            (replica.row.ready_at or 0.0) > gave_way_at for replica in ready
        )
        if self.old and self._has_no_room(self.serving) and is_made_up_for:
            self._drain_first(self.old, DrainCause.NO_ROOM)
            self.gives_way = True
        elif (
            len(ready) >= max(2, self.service.wanted)
            and self._has_no_room(self.tried)
            and not self.old
        ):
            self._drain_first(self.serving, DrainCause.NO_ROOM)

    def _has_no_room(self, group: Sequence[LiveReplica]) -> bool:
        return any(
            replica.waits_since is not None
            and self.now - replica.waits_since >= ROOM_SECONDS
            for replica in group
        )

    def keep_limit(self) -> None:
        """Drain those beyond the limit, after fewer are wanted."""
        while self._count() > self._wanted + 1:
            group = min(
                (group for group in (self.serving, self.old) if group),
                key=lambda group: group[0].end_order,
            )
            self._drain_first(group, DrainCause.TOO_MANY)

    def _count(self) -> int:
        return len(self.serving) + len(self.old) + len(self.tried)

    def missing_revisions(self) -> list[int]:
        """Return the revision of each replica to make."""
        service = self.service
        retry_at = service.trial_retry_at if service.passed else service.retry_at
        missing = self._wanted - len(self.serving)
        room = self._wanted + 1 - self._count()
        count = 0 if is_delayed(retry_at, self.now) else max(0, min(missing, room))
        revisions = [service.goal] * count
        may_try = (
            not self.old
            and not self.tried
            and self._count() + count <= service.wanted
            and not is_delayed(service.trial_retry_at, self.now)
        )
        if service.on_trial is not None and may_try:
            revisions.append(service.on_trial)
        return revisions


def _wake_order(replica: LiveReplica) -> tuple[bool, bool, int]:
    """Return the key by which replicas are woken: first those that have not fallen
    asleep yet, then those that lend nothing, then the oldest."""
    sleep = replica.row.sleep
    is_asleep = sleep is not None and sleep.asleep_at is not None
    is_lent = sleep is not None and bool(sleep.borrows)
    return is_asleep, is_lent, replica.row.number


def _is_awaited(replica: LiveReplica) -> bool:
    """Return whether the replica may become ready without help."""
    return not replica.row.is_ready and not replica.is_failing
