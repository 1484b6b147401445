"""Interpretation of a node's signals over time: which faults it has, how they are
repaired, and when they clear. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from corral.catalog.fault_codes import (
    FaultCode,
    JobConsequence,
    named_by_driver,
    rule_of,
)
from corral.domain.active_checks import CheckKind
from corral.domain.ids import AttemptNumber, JobId, UserName
from corral.domain.node_fault import ConditionKey, NodeCondition, Remedy, Restriction
from corral.domain.node_signal import (
    FAILED,
    OVER,
    PASSED,
    XID_RECOVERY,
    Signal,
    SignalKind,
)
from corral.domain.units import HOUR_SECONDS
from corral.health.health_rules import HealthRules

NEAR_SECONDS: Final = 60.0  # signals of one GPU this close speak of the same fault
MOST_CONDITIONS: Final = 32  # of a node; those that restrict nothing go first
MOST_TIMES: Final = 16
DOUBLE_BIT: Final = (SignalKind.XID, 48)
PAIRED: Final = frozenset(
    {*((SignalKind.XID, code) for code in (48, 63, 64)), (SignalKind.REMAP, FAILED)}
)
REMAP_FAILED: Final = frozenset({(SignalKind.XID, 64), (SignalKind.REMAP, FAILED)})
CLIMB: Final = (Remedy.RESET, Remedy.DEEP_TEST, Remedy.RMA)  # when a fault comes again
# a boot mends these
BY_BOOT: Final = frozenset({Remedy.RESTART_APP, Remedy.RESET, Remedy.REBOOT})

FamilyOf = Callable[[int | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A signal, and the users of the jobs that used its device."""

    signal: Signal
    users: tuple[UserName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that ends jobs: those on its GPU, or all jobs of the node if
    `whole_node`."""

    condition: NodeCondition
    whole_node: bool


def judge_conditions(
    conditions: Sequence[NodeCondition],
    new: Iterable[Noticed],
    now: float,
    rules: HealthRules,
    family: FamilyOf,
) -> tuple[tuple[NodeCondition, ...], tuple[Struck, ...]]:
    """Return the current faults, and those whose jobs must be ended.

    Args:
        new: the new signals, in the order in which they were noticed.
        now: the head's wall clock, in which all times of conditions are given.
        family: returns the family of a GPU by its index; "" if it is not known.
    """
    conditions_by_key = {condition.key: condition for condition in conditions}
    for noticed in new:
        _apply_signal(conditions_by_key, noticed, now, rules)
    passed = [
        _age_ailment(condition, now, rules, family)
        for condition in conditions_by_key.values()
    ]
    living = [
        living_condition for living_condition in passed if living_condition is not None
    ]
    judged = [
        _assess_ailment(condition, living, now, rules, family) for condition in living
    ]
    struck = [
        strike
        for condition in judged
        for strike in _job_ending_faults(condition, living, now, family)
    ]
    done = [_dealt_with(condition, now) for condition in judged]
    return _trim_ailments(done), tuple(struck)


def mended(
    conditions: Iterable[NodeCondition], now: float
) -> tuple[NodeCondition, ...]:
    """Return all faults marked as repaired, because a person has reported so. They are
    kept, so that a recurring fault gets the next remedy."""
    return tuple(_mend_ailment(condition, now) for condition in conditions)


def booted(
    conditions: Iterable[NodeCondition], now: float
) -> tuple[NodeCondition, ...]:
    """Return the faults after a boot of the node; those that a reset or a reboot
    repairs are marked as repaired."""
    return tuple(
        _mend_ailment(condition, now) if condition.remedy in BY_BOOT else condition
        for condition in conditions
    )


def excused(conditions: Iterable[NodeCondition]) -> tuple[NodeCondition, ...]:
    """Return the faults, with all that are present marked as excused: a person lets the
    node work despite them. The mark holds until a fault recurs."""
    return tuple(
        replace(condition, excused=condition.excused or condition.is_live)
        for condition in conditions
    )


# -- one signal ----------------------------------------------------------------------------------


def _apply_signal(
    known: dict[ConditionKey, NodeCondition],
    noticed: Noticed,
    now: float,
    rules: HealthRules,
) -> None:
    signal = noticed.signal
    if signal.kind == SignalKind.CHECK and signal.code == PASSED:
        known.update(
            (condition.key, _mend_ailment(condition, now))
            for condition in known.values()
            if _is_mended_by(condition, signal)
        )
        return
    unit = signal.uuid or signal.gpu
    key = (signal.kind, signal.code, unit, signal.device)
    previous_condition = known.get(key)
    known[key] = _confirmed(previous_condition, signal, now) or _record_occurrence(
        previous_condition, noticed, now, rules
    )
    if (
        signal.confirmed
        and signal.recovery
        and named_by_driver(signal.recovery) == Remedy.IGNORE
    ):
        boot_conditions = [
            condition
            for condition in known.values()
            if condition.unit == unit and condition.remedy in BY_BOOT
        ]
        known.update(
            (condition.key, _mend_ailment(condition, now))
            for condition in boot_conditions
        )  # the driver says: none is needed


def _is_mended_by(one: NodeCondition, passed: Signal) -> bool:
    """Return whether this passed check shows that the fault is repaired."""
    if one.kind == SignalKind.CHECK:
        return one.device == passed.device and one.gpu == passed.gpu
    proof = passed.device in (CheckKind.MATMUL, OVER)
    return one.remedy == Remedy.DEEP_TEST and proof and passed.gpu in (None, one.gpu)


def _confirmed(
    old: NodeCondition | None, signal: Signal, now: float
) -> NodeCondition | None:
    """Return the fault as confirmed, if the signal is the driver's confirmation of the
    fault's last occurrence; None if the signal is a new occurrence."""
    is_same = old is not None and not old.confirmed and old.noticed_at == signal.at
    if old is None or not is_same or not signal.confirmed:
        return None
    return replace(old, confirmed=True, last=now)


def _record_occurrence(
    old: NodeCondition | None, noticed: Noticed, now: float, rules: HealthRules
) -> NodeCondition:
    signal = noticed.signal
    settle = rule_of(signal.kind, signal.code).settle_seconds
    if old is None:
        return NodeCondition(
            kind=signal.kind,
            code=signal.code,
            gpu=signal.gpu,
            device=signal.device,
            text=signal.text,
            since=now,
            last=now,
            times=(now,),
            outbreaks=(now,),
            users=tuple((user, now) for user in dict.fromkeys(noticed.users)),
            attempts=signal.attempts,
            noticed_at=signal.at,
            recovery=signal.recovery,
            settles_at=now + settle if settle else None,
            uuid=signal.uuid,
            confirmed=signal.confirmed,
        )
    late = now - old.last >= rules.outbreak_seconds and not signal.lasting
    anew = old.mended_at is not None or late
    return replace(
        old,
        gpu=signal.gpu,
        text=signal.text,
        since=now if old.mended_at is not None else old.since,
        last=now,
        count=old.count + 1,
        times=(*old.times, now)[-MOST_TIMES:],
        outbreaks=((*old.outbreaks, now) if anew else old.outbreaks)[-MOST_TIMES:],
        users=tuple({**dict(old.users), **dict.fromkeys(noticed.users, now)}.items())[
            -MOST_TIMES:
        ],
        attempts=_merge_attempts(old, signal, now),
        noticed_at=signal.at,
        recovery=signal.recovery,
        settles_at=now + settle if settle and anew else old.settles_at,
        mended_at=None,
        excused=False,
        confirmed=signal.confirmed or (old.confirmed and old.mended_at is None),
    )


def _merge_attempts(
    old: NodeCondition, signal: Signal, now: float
) -> tuple[tuple[JobId, AttemptNumber], ...]:
    """Return the attempts that belong to the fault: those of the new signal and, until
    the fault has settled, those of its earlier signals."""
    kept_attempts = old.attempts if not _is_settled(old, now) else ()
    return tuple(dict.fromkeys((*kept_attempts, *signal.attempts)))


# -- time ----------------------------------------------------------------------------------------


def _age_ailment(
    condition: NodeCondition, now: float, rules: HealthRules, family: FamilyOf
) -> NodeCondition | None:
    """Return the fault as it is after the time that has passed: some faults clear by
    themselves. Return None for a fault that is so old that it is dropped."""
    if condition.is_live:
        clears = rule_of(
            condition.kind, condition.code, family(condition.gpu)
        ).clears_seconds
        if clears is not None and now - condition.last >= clears:
            condition = _mend_ailment(condition, now)
    elif now - (condition.mended_at or now) >= rules.repeat_seconds:
        return None
    if (
        condition.restriction == Restriction.OPEN
        and now - condition.last >= rules.repeat_seconds
    ):
        return None
    times = tuple(
        occurred_at
        for occurred_at in condition.times
        if now - occurred_at < HOUR_SECONDS
    )
    outbreaks = tuple(
        outbreak_at
        for outbreak_at in condition.outbreaks
        if now - outbreak_at < rules.repeat_seconds
    )
    users = tuple(
        (user, failed_at)
        for user, failed_at in condition.users
        if now - failed_at < rules.users_seconds
    )
    if (times, outbreaks, users) == (
        condition.times,
        condition.outbreaks,
        condition.users,
    ):
        return condition
    return replace(condition, times=times, outbreaks=outbreaks, users=users)


def _mend_ailment(one: NodeCondition, now: float) -> NodeCondition:
    if not one.is_live:
        return one
    return replace(
        one,
        mended_at=now,
        excused=False,
        settles_at=None,
        users=(),
        restriction=Restriction.OPEN,
    )


# -- the verdict ---------------------------------------------------------------------------------


def _assess_ailment(
    one: NodeCondition,
    others: Sequence[NodeCondition],
    now: float,
    rules: HealthRules,
    family: FamilyOf,
) -> NodeCondition:
    if not one.is_live:
        return one
    remedy, restriction = _choose_remedy(
        one, others, now, rules, rule_of(one.kind, one.code, family(one.gpu))
    )
    if not one.confirmed:
        restriction = min(
            restriction, Restriction.AVOID, key=lambda restriction: restriction.rank
        )
    return (
        one
        if (one.remedy, one.restriction) == (remedy, restriction)
        else replace(one, remedy=remedy, restriction=restriction)
    )


def _choose_remedy(
    one: NodeCondition,
    others: Sequence[NodeCondition],
    now: float,
    rules: HealthRules,
    rule: FaultCode,
) -> tuple[Remedy, Restriction]:
    """Return the remedy and the restriction for the fault: those in its table row
    `rule`, unless time, related faults or the driver change them."""
    if len(one.times) < rule.an_hour and not _was_acted_on(one):
        return Remedy.IGNORE, Restriction.OPEN  # one flap: it is reported and counted
    if rule.is_caused_by_user:
        has_many_users = len(one.users) >= rules.users
        return (
            (Remedy.DEEP_TEST, Restriction.CORDON)
            if has_many_users
            else (rule.remedy, Restriction.OPEN)
        )
    driver_remedy = _driver_remedy(one, others)
    if driver_remedy is not None:
        return (
            driver_remedy,
            Restriction.DRAIN if driver_remedy != Remedy.IGNORE else Restriction.OPEN,
        )
    beside = {
        (concurrent_fault.kind, concurrent_fault.code)
        for concurrent_fault in _concurrent_faults(one, others)
    }
    if (one.kind, one.code) == DOUBLE_BIT and beside & REMAP_FAILED:
        return Remedy.RMA, Restriction.DRAIN
    if not _is_settled(one, now) and not beside & PAIRED:
        return rule.remedy, min(
            rule.restriction,
            Restriction.AVOID,
            key=lambda restriction: restriction.rank,
        )
    climbed = _escalate_remedy(rule.remedy, len(one.outbreaks) - 1)
    if climbed == rule.remedy:
        return rule.remedy, rule.restriction
    return climbed, Restriction.AVOID if climbed == Remedy.RESET else Restriction.DRAIN


def _was_acted_on(one: NodeCondition) -> bool:
    """Return whether the fault restricts its node. The node stays restricted until the
    fault clears."""
    return one.restriction != Restriction.OPEN


def _driver_remedy(
    one: NodeCondition, others: Sequence[NodeCondition]
) -> Remedy | None:
    """Return the strongest repair that the driver requested for this GPU at about the
    same time; None without a request."""
    if one.kind != SignalKind.XID:
        return None
    recovery_texts = (
        [one.recovery] if one.code == XID_RECOVERY and one.confirmed else []
    )
    recovery_texts += [
        near.recovery
        for near in _concurrent_faults(one, others)
        if near.code == XID_RECOVERY
    ]
    remedies = [
        remedy for remedy in map(named_by_driver, recovery_texts) if remedy is not None
    ]
    return max(remedies, key=lambda remedy: remedy.rank, default=None)


def _concurrent_faults(
    one: NodeCondition, others: Sequence[NodeCondition]
) -> list[NodeCondition]:
    """Return the faults of the same GPU whose last signal came at about the same
    time."""
    return [
        other_condition
        for other_condition in others
        if other_condition is not one
        and other_condition.is_live
        and other_condition.confirmed
        and other_condition.unit == one.unit
        and abs(other_condition.last - one.last) < NEAR_SECONDS
    ]


def _escalate_remedy(remedy: Remedy, times: int) -> Remedy:
    """Return the remedy for a recurring fault, by its number of recurrences.

    The order is reset, deep test, RMA.
    """
    if times <= 0 or remedy not in (Remedy.RESTART_APP, Remedy.RESET, Remedy.REBOOT):
        return remedy
    start = 0 if remedy == Remedy.RESTART_APP else 1
    return CLIMB[min(start + times - 1, len(CLIMB) - 1)]


# -- the jobs on it ------------------------------------------------------------------------------


def _job_ending_faults(
    one: NodeCondition, others: Sequence[NodeCondition], now: float, family: FamilyOf
) -> Iterable[Struck]:
    if (
        not one.is_live
        or not one.confirmed
        or one.excused
        or one.struck >= one.last
        or not _is_settled(one, now)
    ):
        return
    jobs = rule_of(one.kind, one.code, family(one.gpu)).jobs
    spared = _driver_remedy(one, others) == Remedy.IGNORE or one.remedy == Remedy.IGNORE
    if jobs != JobConsequence.RUN_ON and not spared:
        yield Struck(
            condition=one,
            whole_node=jobs == JobConsequence.RESTART_NODE or one.gpu is None,
        )


def _is_settled(one: NodeCondition, now: float) -> bool:
    return one.settles_at is None or now >= one.settles_at


def _dealt_with(one: NodeCondition, now: float) -> NodeCondition:
    is_due = one.struck < one.last and _is_settled(one, now)
    return replace(one, struck=one.last) if is_due else one


def _trim_ailments(conditions: Sequence[NodeCondition]) -> tuple[NodeCondition, ...]:
    """Return at most MOST_CONDITIONS faults. Faults that restrict the node least are
    dropped first, and of these the oldest."""
    if len(conditions) <= MOST_CONDITIONS:
        return tuple(conditions)
    kept_conditions = sorted(
        conditions, key=lambda one: (one.active_restriction.rank, one.last)
    )[-MOST_CONDITIONS:]
    return tuple(sorted(kept_conditions, key=lambda one: one.since))
