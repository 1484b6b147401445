"""Budgets of tokens of users, keys and queues, as one process of a gateway keeps them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from corral.gateway.counting.gateway_metrics import BudgetCounts
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.route.token_budget import TokenBudget
from corral.wire.gateway_routes import BudgetEntry


class BudgetCharge:
    """Tokens that one request has reserved in its budgets."""

    __slots__ = ("_budgets", "_reserved")

    def __init__(self, budgets: Sequence[TokenBudget], reserved: int) -> None:
        self._budgets = budgets
        self._reserved = reserved
        for budget in budgets:
            budget.reserve(reserved)

    def finish(self, used: int) -> None:
        """Count the tokens that the request has used; call it once."""
        for budget in self._budgets:
            budget.finish(used, self._reserved)


class GatewayBudgets:
    """Budgets of one process.

    Args:
        process: Id under which the process counts.
        counts: What it has counted before, by budget.
        share: Part of each budget that this process grants; workers divide it.
    """

    __slots__ = ("_budgets", "_entries", "_process", "_share")

    def __init__(
        self, process: str, counts: dict[str, BudgetCounts], share: float
    ) -> None:
        self._process = process
        self._share = share
        self._entries: dict[str, BudgetEntry] = {}
        self._budgets = {
            name: TokenBudget(count.tokens, count.refused)
            for name, count in counts.items()
        }

    def update(self, entries: Iterable[BudgetEntry]) -> None:
        """Take the parts of a new state."""
        previous = self._entries
        self._entries = {entry.name: entry for entry in entries}
        for name, entry in self._entries.items():
            if previous.get(name) == entry:
                continue
            budget = self._budgets.setdefault(name, TokenBudget())
            budget.grant(entry.part * self._share, entry.seen.get(self._process))

    def admit(
        self, of_caller: str | None, of_service: Sequence[str], tokens: int
    ) -> BudgetCharge | GatewayRefusal | None:
        """Reserve tokens in the budgets that exist, or say which one is used up. None if
        none of them exists."""
        budgets = []
        for name in (of_caller, *of_service):
            entry = None if name is None else self._entries.get(name)
            if entry is None:
                continue
            budget = self._budgets[entry.name]
            if not budget.has_room(tokens):
                budget.refused += 1
                return _refusal(entry, budget, tokens)
            budgets.append(budget)
        return BudgetCharge(budgets, tokens) if budgets else None

    @property
    def counts(self) -> dict[str, BudgetCounts]:
        """Return what was counted, by budget."""
        return {
            name: BudgetCounts(budget.finished, budget.refused)
            for name, budget in self._budgets.items()
        }


def _refusal(entry: BudgetEntry, budget: TokenBudget, tokens: int) -> GatewayRefusal:
    renews = datetime.fromtimestamp(entry.renews_at, UTC)
    return GatewayRefusal(
        GatewayCode.INSUFFICIENT_QUOTA,
        f"the token budget of {entry.name} {_shortage_text(entry, budget, tokens)}; it "
        f"renews on {renews:%Y-%m-%d %H:%M} UTC",
    )


def _shortage_text(entry: BudgetEntry, budget: TokenBudget, tokens: int) -> str:
    """Return what the budget allows, what of it is used, and what the request needs."""
    need = f"this request needs about {tokens:,} with its answer"
    remaining = max(0, round(budget.left))
    if entry.limit is None or entry.used is None:
        return f"has {remaining:,} tokens left at this gateway, and {need}"
    used = entry.used + budget.unseen
    use = f"{used:,} of {entry.limit:,} tokens a month are used or reserved"
    if used >= entry.limit:
        return f"is used up: {use}"
    if used + tokens <= entry.limit:
        return f"has {remaining:,} tokens left at this gateway now ({use}), and {need}"
    return (
        f"is too small for this request: {use}, and {need} (fewer with a smaller "
        "max_tokens)"
    )
