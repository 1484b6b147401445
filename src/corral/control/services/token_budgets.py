"""Budgets of tokens in each calendar month: of users by their quota, of queues, and of API
keys."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from corral.control.services.budget_deals import BudgetState
from corral.domain.ids import QueueName, TokenId, UserName
from corral.domain.ledger import UsageRecord
from corral.domain.queue_tree import QueueTree
from corral.domain.quota import Quota, Quotas
from corral.domain.users import Token, User

USER: Final = "user"
QUEUE: Final = "queue"
KEY: Final = "token"


def user_budget(user: str) -> str:
    """Return the name of the budget of a user."""
    return f"{USER} {user}"


def key_budget(token: TokenId) -> str:
    """Return the name of the budget of an API key."""
    return f"{KEY} {token}"


def queue_budgets(tree: QueueTree, queue: QueueName) -> tuple[str, ...]:
    """Return the names of the budgets of a queue and of the queues above it."""
    return tuple(
        f"{QUEUE} {above.name}"
        for above in tree.path(queue)
        if above.tokens_per_month is not None
    )


def month_tokens(user: User, cluster: Mapping[str, int]) -> int | None:
    """Return how many tokens a user may use in a month; None: no limit.

    Args:
        cluster: Limits of all users, by the name of the quota.
    """
    limits = Quotas(
        user=user.name, role=user.role, own=dict(user.limits), cluster=cluster
    )
    return limits.find_limit(Quota.TOKENS_PER_MONTH)


def has_budgets(
    users: Iterable[User], cluster: Mapping[str, int], tree: QueueTree
) -> bool:
    """Return whether any budget is set."""
    return any(queue.tokens_per_month is not None for queue in tree.queues) or any(
        month_tokens(user, cluster) is not None for user in users
    )


def budget_states(
    users: Sequence[User],
    cluster: Mapping[str, int],
    tree: QueueTree,
    used: Iterable[UsageRecord],
    renews_at: float,
) -> dict[str, BudgetState]:
    """Return the budgets by name.

    Args:
        used: Usage since the month began, of the ledger and of what it lacks.
        renews_at: When the next month begins (wall clock).
    """
    by_user: dict[UserName, float] = {}
    by_queue: dict[str, float] = {}
    for record in used:
        tokens = record.amounts.service_tokens
        if not tokens:
            continue
        by_user[record.user] = by_user.get(record.user, 0.0) + tokens
        for name in queue_budgets(tree, record.queue):
            by_queue[name] = by_queue.get(name, 0.0) + tokens
    states = {}
    for user in users:
        limit = month_tokens(user, cluster)
        if limit is not None:
            count = round(by_user.get(user.name, 0.0))
            states[user_budget(user.name)] = BudgetState(limit, count, renews_at)
    for queue in tree.queues:
        if queue.tokens_per_month is not None:
            name = f"{QUEUE} {queue.name}"
            count = round(by_queue.get(name, 0.0))
            states[name] = BudgetState(queue.tokens_per_month, count, renews_at)
    return states


def key_budget_states(
    tokens: Iterable[Token], used: Mapping[TokenId, int], renews_at: float
) -> dict[str, BudgetState]:
    """Return the budgets of API keys by name.

    Args:
        used: Tokens of each key since the month began.
        renews_at: When the next month begins (wall clock).
    """
    return {
        key_budget(token.id): BudgetState(
            token.tokens_per_month, used.get(token.id, 0), renews_at
        )
        for token in tokens
        if token.tokens_per_month is not None
    }


def month_of(at: float) -> tuple[float, float]:
    """Return when the calendar month (UTC) of a moment began, and when the next one
    begins (wall clock)."""
    now = datetime.fromtimestamp(at, UTC)
    first = datetime(now.year, now.month, 1, tzinfo=UTC)
    following = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return first.timestamp(), following.timestamp()
