"""Scaling of replicas that prefill and decode apart: what each group does of the load, and
which rule of the spec decides its number."""

from dataclasses import replace

from corral.domain.role_rule import RoleRule
from corral.domain.service import ScaleRule
from corral.route.load_history import ServiceCounters
from corral.route.replica_count import ReplicaLimits, ScaleMeasure
from corral.route.service_demand import AnsweredLoad, replica_limits


def group_rule(scale: ScaleRule, *, prefill: bool) -> ScaleRule:
    """Return the rule for one group: the time to first token is a goal of the prefill
    replicas, the time between tokens one of the decode replicas."""
    if prefill:
        return replace(scale, itl_p90_seconds=None)
    return replace(scale, ttft_p90_seconds=None)


def group_limits(scale: ScaleRule, rule: RoleRule) -> ReplicaLimits:
    """Return the limits of the number of replicas of one group, and what decides it.
    Without a measure, prefill replicas go by the tokens of the prompts, and decode
    replicas by the requests under way."""
    prefill = rule.role.is_prefill
    of_group = group_rule(scale, prefill=prefill)
    limits = replica_limits(of_group, rule.min_replicas, rule.max_replicas)
    has_measure = any((scale.queue, scale.rps, scale.tokens))
    if prefill and not has_measure:
        return replace(limits, rule=ScaleMeasure.LATENCY, amount=1.0)
    return limits


def prefill_counters(counters: ServiceCounters, at_prefill: int) -> ServiceCounters:
    """Return what the prefill replicas do of a load.

    Args:
        at_prefill: Requests whose prompts they compute or have waiting.
    """
    return counters._replace(output_tokens=0.0, outstanding=float(at_prefill))


def decode_counters(
    counters: ServiceCounters, at_prefill: int, own_tokens: float
) -> ServiceCounters:
    """Return what the decode replicas do of a load.

    Args:
        own_tokens: Tokens of prompts that they had to compute themselves.
    """
    outstanding = max(0.0, counters.outstanding - at_prefill)
    return counters._replace(new_tokens=own_tokens, outstanding=outstanding)


def prefill_answers(answered: AnsweredLoad) -> AnsweredLoad:
    """Return what answers show of the speed of prefill replicas."""
    return replace(answered, gaps=0, gap_seconds=0.0)


def decode_answers(answered: AnsweredLoad) -> AnsweredLoad:
    """Return what answers show of the speed of decode replicas."""
    return replace(answered, first_tokens=0, new_tokens=0, first_token_seconds=0.0)


def waiting_prompts(tokens: int, tokens_per_prompt: float, ready: int) -> int:
    """Return how many prompts wait at prefill replicas, beyond the one that each ready
    replica computes.

    Args:
        tokens: Tokens that were sent to them and are not computed yet.
    """
    prompts = round(tokens / max(1.0, tokens_per_prompt))
    return max(0, prompts - ready)
