"""Renewal of what was learned of a replica that gets no requests.

A replica whose first answers were slow, because its engine compiled or its caches were
empty, has a high price, gets no requests, and so would keep that price for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.route.choice import ReplicaState
from corral.route.learned_rates import LearnedRates

IDLE_SECONDS: Final = 5.0  # without a request until the first renewal
LONGEST_IDLE_SECONDS: Final = 600.0
# answers of the others meanwhile, without which there was nothing to send to it
LEAST_OTHER_ANSWERS: Final = 20
USEFUL_ANSWERS: Final = 50  # after which a renewal was right, and the next comes soon
USUAL_PROMPT_TOKENS: Final = 1000.0
USUAL_ANSWER_TOKENS: Final = 100.0


@dataclass(slots=True)
class _IdleSpan:
    """Time for which a replica has had no request. `since`: its beginning; `answers`
    of the replica and `all_answers` of the service at that time; `wait_seconds` until
    its rates are renewed; `useful_answers`: its answers at the last renewal."""

    since: float
    answers: int
    all_answers: int
    wait_seconds: float = IDLE_SECONDS
    useful_answers: int = 0


@dataclass(slots=True)
class RateRenewal:
    """Idle spans of the replicas of one service. Each renewal of a replica doubles the
    time until its next one, up to LONGEST_IDLE_SECONDS, unless it was useful."""

    _spans: dict[str, _IdleSpan] = field(default_factory=dict)

    def renew(
        self, states: Sequence[ReplicaState], answers: Mapping[str, int], now: float
    ) -> str | None:
        """Give at most one idle replica, which is priced higher than another one, the
        rates of the fastest replica. Few requests then decide whether they hold.

        Args:
            states: replicas that take requests.
            answers: requests that each has answered, by its name.

        Returns: its name, or None.
        """
        total = sum(answers.get(state.name, 0) for state in states)
        self._spans = {
            state.name: self._span(state, answers.get(state.name, 0), total, now)
            for state in states
        }
        if len(states) < 2:
            return None
        fastest = min(states, key=lambda state: usual_seconds(state.rates))
        for state in states:
            span = self._spans[state.name]
            if (
                now - span.since >= span.wait_seconds
                and total - span.all_answers >= LEAST_OTHER_ANSWERS
                and state.ejected_until <= now
                and usual_seconds(state.rates) > usual_seconds(fastest.rates)
            ):
                state.rates = fastest.rates.as_initial()
                span.since, span.all_answers = now, total
                span.wait_seconds = min(2 * span.wait_seconds, LONGEST_IDLE_SECONDS)
                span.useful_answers = span.answers + USEFUL_ANSWERS
                return state.name
        return None

    def _span(
        self, state: ReplicaState, answers: int, total: int, now: float
    ) -> _IdleSpan:
        span = self._spans.get(state.name)
        if span is None:
            return _IdleSpan(now, answers, total)
        if state.in_flight or answers != span.answers:
            span.since, span.answers, span.all_answers = now, answers, total
            if span.useful_answers and answers >= span.useful_answers:
                span.wait_seconds, span.useful_answers = IDLE_SECONDS, 0
        return span


def usual_seconds(rates: LearnedRates) -> float:
    """Return the seconds that a usual request would take alone at these rates."""
    return rates.request_seconds(USUAL_PROMPT_TOKENS, USUAL_ANSWER_TOKENS, 1)
