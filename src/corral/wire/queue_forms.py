"""Queues in the form of a queue file, and the differences between two queue trees."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from corral.domain.idle_policy import IdleRule
from corral.domain.job import PRIORITIES
from corral.domain.queue import Budget, Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.units import MILLIS_PER_GPU, written_duration
from corral.wire.queue_fields import BORROW_ONLY


def form_of(queue: Queue) -> dict[str, Any]:
    """Return the fields of a queue as in a queue file, without fields that have their
    default."""
    lowest_priority, highest_priority = queue.lowest_priority, queue.highest_priority
    form: dict[str, Any] = {
        "name": queue.name,
        "parent": queue.parent,
        "gpus": {kind: _gpus_from_millis(millis) for kind, millis in queue.nominal}
        or None,
        "weight": queue.weight if queue.weight != 1.0 else None,
        "borrow": _gpus_from_millis(queue.borrow_limit_millis),
        "lend": _gpus_from_millis(queue.lend_limit_millis),
        "max_per_user": _gpus_from_millis(queue.most_per_user_millis),
        "max_duration": _format_duration(queue.longest_seconds),
        "priorities": None
        if lowest_priority is None or highest_priority is None
        else [_priority_name(lowest_priority), _priority_name(highest_priority)],
        "allow": None if queue.allow is None else list(queue.allow),
        "visibility": queue.visibility,
        "operators": list(queue.operators) or None,
        "idle": _idle_form(queue.idle) if queue.idle is not None else None,
        "policy": queue.policy if queue.policy != Policy.DEFAULT else None,
        "preempt": queue.preempt if queue.preempt != Preempt.SAVING else None,
        "budget": _budget_form(queue.budget) if queue.budget is not None else None,
        "tokens_per_month": queue.tokens_per_month,
    }
    return {key: value for key, value in form.items() if value is not None}


def _idle_form(rule: IdleRule) -> dict[str, Any]:
    form = {
        "warn": _format_duration(rule.warn_seconds),
        "reclaim": _format_duration(rule.reclaim_seconds),
    }
    return {key: value for key, value in form.items() if value is not None}


def _budget_form(budget: Budget) -> dict[str, Any]:
    end_time = (
        None if budget.until is None else datetime.fromtimestamp(budget.until, UTC)
    )
    form: dict[str, Any] = {
        "gpu_hours": budget.gpu_hours,
        "money": budget.money,
        "rates": dict(budget.rates) or None,
        "period": _format_duration(budget.period_seconds),
        "until": None if end_time is None else end_time.isoformat(),
        "then": BORROW_ONLY
        if budget.demote_to is None
        else _priority_name(budget.demote_to),
    }
    return {key: value for key, value in form.items() if value is not None}


def _gpus_from_millis(millis: int | None) -> float | int | None:
    if millis is None:
        return None
    return (
        millis / MILLIS_PER_GPU if millis % MILLIS_PER_GPU else millis // MILLIS_PER_GPU
    )


def _format_duration(seconds: float | None) -> str | None:
    return None if seconds is None else written_duration(seconds)


def _priority_name(priority: int) -> str | int:
    names = {number: name for name, number in PRIORITIES.items()}
    return names.get(priority, priority)


def changes_of(before: QueueTree, after: QueueTree) -> list[str]:
    """Return the differences, one line each; an empty list if there are none."""
    lines = []
    old_rules, new_rules = _global_rules_form(before), _global_rules_form(after)
    for rule_name in old_rules:
        if old_rules[rule_name] != new_rules[rule_name]:
            lines.append(
                f"~ {rule_name}: {form_text(old_rules[rule_name])} -> "
                f"{form_text(new_rules[rule_name])}"
            )
    for queue in before.queues:
        if queue.name not in after.by_name:
            lines.append(f"- {queue.name}")
    for queue in after.queues:
        new_form = form_of(queue)
        if queue.name not in before.by_name:
            rest = ", ".join(
                f"{key}: {form_text(form_value)}"
                for key, form_value in list(new_form.items())[1:]
            )
            lines.append(f"+ {queue.name}{': ' if rest else ''}{rest}")
            continue
        old_form = form_of(before.queue(queue.name))
        for key in {**old_form, **new_form}:
            if old_form.get(key) != new_form.get(key):
                old_text, new_text = (
                    form_text(old_form.get(key)),
                    form_text(new_form.get(key)),
                )
                lines.append(f"~ {queue.name}: {key}: {old_text} -> {new_text}")
    return lines


def _global_rules_form(tree: QueueTree) -> dict[str, Any]:
    """Return the rules of all queues, in the form of a file."""
    return {
        "half_life": _format_duration(tree.half_life_seconds),
        "min_runtime": _format_duration(tree.min_runtime_seconds),
        "relocation": relocation_form(tree),
        "locality_delay": locality_delay_form(tree),
        "currency": tree.currency,
    }


def relocation_form(tree: QueueTree) -> dict[str, Any] | None:
    """Return the relocation rule in the form of a file; None: jobs are not moved."""
    rule = tree.relocation
    if rule is None:
        return None
    return {"gpu_hours": rule.gpu_hours, "pause": _format_duration(rule.pause_seconds)}


def locality_delay_form(tree: QueueTree) -> dict[str, Any] | None:
    """Return the locality delay in the form of a file; None: no job waits for close
    nodes."""
    form = {
        "rack": tree.rack_locality_delay_seconds,
        "pod": tree.pod_locality_delay_seconds,
    }
    return {
        level: _format_duration(seconds) for level, seconds in form.items() if seconds
    } or None


def form_text(value: Any) -> str:
    """Return a value of a queue file as text on one line."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(
                f"{key}: {form_text(form_value)}" for key, form_value in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(form_text, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
