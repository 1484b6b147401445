"""Interpretation of the results of active checks, by comparison with data sheets, with
the node's earlier results and with other nodes. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from corral.catalog.check_bounds import bounds_of, most_clock_seconds, rated
from corral.domain.active_checks import (
    MOST_MEASURES,
    MOST_PAST,
    CheckKind,
    CheckMeasure,
    CheckUp,
    Result,
)
from corral.domain.node import Node
from corral.domain.node_signal import FAILED, NOT_RUN, OVER, PASSED, Signal, SignalKind
from corral.domain.units import share_text

# of the device itself; what stands in for it has another unit
BYTES_PER_SECOND: Final = "B/s"
SHARED: Final = " shared"  # ends the unit of a disk that others use, too
_OF_ASKER: Final = (
    CheckKind.CLOCK,
    CheckKind.DATA,
)  # a sensor reports the clock; nothing reports the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Result of processing the signals of a node. `node`: the updated node. `signals`:
    the signals from which verdicts about health are made. `over`: the check-ups that
    have ended, each with a flag: it has shown the node to be healthy."""

    node: Node
    signals: tuple[Signal, ...]
    over: tuple[tuple[CheckUp, bool], ...] = ()


def take_checks(
    node: Node, signals: Sequence[Signal], fleet: Iterable[Node], now: float
) -> Checked:
    """Process the check results among a node's signals; pass other signals through.

    Args:
        fleet: all nodes, whose links are compared.
        now: the head's wall clock.
    """
    kept_signals: list[Signal] = []
    finished_checkups: list[tuple[CheckUp, bool]] = []
    fleet_nodes = list(fleet)
    for signal in signals:
        if signal.kind != SignalKind.CHECK or not signal.checkup:
            kept_signals.append(signal)
        elif signal.device == OVER:
            checkup = next(
                (
                    check_up
                    for check_up in node.checkups
                    if check_up.id == signal.checkup
                ),
                None,
            )
            if checkup is not None:
                node, well = _finish_checkup(node, checkup, signal, now)
                finished_checkups.append((checkup, well))
                kept_signals += [replace(signal, code=PASSED)] if well else []
        else:
            node, measure = _record_measure(node, signal, fleet_nodes, now)
            kept_signals += _for_health(signal, measure)
    return Checked(
        node=node, signals=tuple(kept_signals), over=tuple(finished_checkups)
    )


def _for_health(signal: Signal, measure: CheckMeasure) -> list[Signal]:
    """Return the signal by which health learns of a check result; [] if the result says
    nothing about this node. A failed link is left out: `slow_end` decides which of its
    two ends is faulty."""
    if measure.kind in _OF_ASKER or measure.result == Result.NOT_RUN:
        return []
    failed = measure.result == Result.FAILED
    if failed and not speaks_against_node(measure):
        return []
    return [replace(signal, code=FAILED if failed else PASSED, text=measure.text)]


def _finish_checkup(
    node: Node, checkup: CheckUp, signal: Signal, now: float
) -> tuple[Node, bool]:
    """Remove a finished check-up from the node. Return the node, and whether the
    check-up has shown it to be healthy: the check of matrix products has passed on each
    GPU, and no failed check speaks against the node."""
    check_ups = tuple(check_up for check_up in node.checkups if check_up is not checkup)
    if signal.code == NOT_RUN:  # something was to run meanwhile
        return replace(node, checkups=check_ups), False
    check_measures = [
        measure for measure in node.measures if measure.checkup == checkup.id
    ]
    passed = {
        check_measure.gpu
        for check_measure in check_measures
        if (check_measure.kind, check_measure.result)
        == (CheckKind.MATMUL, Result.PASSED)
    }
    asked_gpus: set[int | None] = {gpu.index for gpu in node.inventory.gpus}
    well = passed >= (asked_gpus or {None}) and not any(
        speaks_against_node(check_measure) for check_measure in check_measures
    )
    last_checked_at = now if CheckKind.MATMUL in checkup.kinds else node.checked_at
    return replace(node, checkups=check_ups, checked_at=last_checked_at), well


def speaks_against_node(measure: CheckMeasure) -> bool:
    """Return whether the check result shows a fault of the node itself, and not of
    something that it shares with other nodes."""
    if measure.kind in (*_OF_ASKER, CheckKind.LINK) or measure.unit.endswith(SHARED):
        return False
    return measure.result == Result.FAILED


# -- one result ----------------------------------------------------------------------------------


def _record_measure(
    node: Node, signal: Signal, fleet: Sequence[Node], now: float
) -> tuple[Node, CheckMeasure]:
    kind, _, device = signal.device.partition(":")
    new_measure = CheckMeasure(
        kind=CheckKind(kind),
        result=Result.NOT_RUN,
        text=signal.text,
        at=now,
        checkup=signal.checkup,
        gpu=signal.gpu,
        device=device,
        value=signal.value,
        unit=signal.unit,
    )
    previous_measure = next(
        (measure for measure in node.measures if measure.key == new_measure.key), None
    )
    if previous_measure is not None and previous_measure.unit == new_measure.unit:
        new_measure = replace(new_measure, past=previous_measure.past)
    if signal.code in (PASSED, FAILED):
        result = Result.PASSED if signal.code == PASSED else Result.FAILED
        new_measure = replace(new_measure, result=result, expected=signal.limit)
    elif signal.value is not None:
        new_measure = _judge_measure(new_measure, node, fleet)
    if new_measure.value is not None and new_measure.result != Result.FAILED:
        new_measure = replace(
            new_measure, past=(*new_measure.past, new_measure.value)[-MOST_PAST:]
        )
    check_measures = [
        measure for measure in node.measures if measure.key != new_measure.key
    ]
    return replace(
        node, measures=(*check_measures, new_measure)[-MOST_MEASURES:]
    ), new_measure


def _judge_measure(
    one: CheckMeasure, node: Node, fleet: Sequence[Node]
) -> CheckMeasure:
    """Return the check result with a verdict, after comparing its value with the
    expected one."""
    assert one.value is not None
    if one.kind == CheckKind.CLOCK:
        max_clock_seconds = most_clock_seconds()
        passed = abs(one.value) <= max_clock_seconds
        return replace(
            one,
            expected=max_clock_seconds,
            result=Result.PASSED if passed else Result.FAILED,
        )
    expected, of_what = least_of(one, node, fleet)
    if expected is None:
        return replace(one, result=Result.MEASURED)
    if one.value >= expected:
        return replace(one, expected=expected, result=Result.PASSED)
    text = f"{one.text}, which is less than {of_what}"
    return replace(one, expected=expected, result=Result.FAILED, text=text)


def least_of(
    one: CheckMeasure, node: Node, fleet: Sequence[Node]
) -> tuple[float | None, str]:
    """Return the lowest value with which the check passes, and a text that says what
    this bound is a share of. Of several known bounds the highest counts; (None, "") if
    no bound is known."""
    bounds = bounds_of(one.kind)
    types = node.inventory.types
    least_rates: list[tuple[float, str]] = []
    if bounds.least is not None and types and one.unit == BYTES_PER_SECOND:
        rate = rated(one.kind, types[one.gpu or 0])
        if rate is not None:
            least_rates.append(
                (
                    bounds.least * rate,
                    f"{share_text(bounds.least)} of the rate in the data sheet",
                )
            )
    if bounds.own is not None and len(one.past) >= bounds.own_results:
        least_rates.append(
            (
                bounds.own * median(one.past),
                f"{share_text(bounds.own)} of the node's earlier results",
            )
        )
    if bounds.fleet is not None:
        fleet_values = _elsewhere(one, node, fleet)
        if len(fleet_values) >= bounds.own_results:
            least_rates.append(
                (
                    bounds.fleet * median(fleet_values),
                    f"{share_text(bounds.fleet)} of the results of other nodes",
                )
            )
    return max(least_rates, default=(None, ""), key=lambda each: each[0] or 0.0)


def _elsewhere(one: CheckMeasure, node: Node, fleet: Sequence[Node]) -> list[float]:
    """Return the values that other nodes have for the same check, in the same unit."""
    return [
        measure.value
        for peer_node in fleet
        if peer_node.id != node.id
        for measure in peer_node.measures
        if (measure.kind, measure.unit) == (one.kind, one.unit)
        and measure.value is not None
    ]


# -- links ---------------------------------------------------------------------------------------


def slow_end(node: Node, fleet: Iterable[Node]) -> tuple[str, ...]:
    """Return the nodes at the other ends of the slow links of `node`, if `node` is the
    faulty end; otherwise (). It is the faulty end if at least two of its links have
    failed, none has passed, and each node at the other end has a good link."""
    slow = {
        link.device for link in _link_measures(node) if link.result == Result.FAILED
    }
    if len(slow) < 2 or any(
        link.result == Result.PASSED for link in _link_measures(node)
    ):
        return ()
    good = {
        peer_node.id
        for peer_node in fleet
        if any(
            link.result in (Result.PASSED, Result.MEASURED)
            for link in _link_measures(peer_node)
        )
    }
    return tuple(sorted(slow)) if slow <= good else ()


def _link_measures(node: Node) -> list[CheckMeasure]:
    return [measure for measure in node.measures if measure.kind == CheckKind.LINK]
