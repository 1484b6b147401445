"""Rate limits of requests: what one user, and each token of the user, may send on
average and in a burst."""

from collections.abc import Callable
from math import ceil
from typing import Final

from corral.api.auth import Caller
from corral.api.errors import TooMany
from corral.domain.ids import UserName
from corral.domain.quota import RateUse
from corral.domain.users import Role
from corral.ingress.buckets import TokenBuckets

BURST_SECONDS: Final = 10.0  # of the rate, at once
# of its user's rate: one script leaves a part for the user's others
TOKEN_SHARE: Final = 0.75
# of a body or an answer that cost as much as one more request
COST_BYTES: Final = 64 * 1024
# of a submission or a dry run that cost as much as one more request
COST_JOBS: Final = 10


class Rates:
    """Token buckets that limit the requests of users and of their tokens. Agents and
    joining machines have no limit."""

    def __init__(self, *, user_requests: float, clock: Callable[[], float]) -> None:
        """Args:
        user_requests: Requests per second that one user may send."""
        self._users = _make_token_buckets(user_requests, clock)
        self._tokens = _make_token_buckets(user_requests * TOKEN_SHARE, clock)

    def check(self, caller: Caller) -> None:
        """Charge one request of the caller.

        Raises: TooMany if the caller exceeds a rate limit.
        """
        if caller.node is not None or caller.role == Role.JOIN:
            return
        wait = self._tokens.take(caller.sha256)
        if wait > 0:
            raise _too_many(self._tokens, f"a token of {caller.name}", wait)
        wait = self._users.take(caller.name)
        if wait > 0:
            raise _too_many(self._users, str(caller.name), wait)

    def of_user(self, user: UserName) -> RateUse:
        """Return how much of the request rate the user has used lately, and the limit."""
        buckets = self._users
        return RateUse(
            used=buckets.used(user), most=buckets.burst, a_second=buckets.rate
        )

    def charge(self, caller: Caller, size_bytes: int) -> None:
        """Charge the caller for the size of a large body or response."""
        if size_bytes >= COST_BYTES:
            self._charge_caller(caller, size_bytes / COST_BYTES)

    def charge_jobs(self, caller: Caller, jobs: int) -> None:
        """Charge the caller for the jobs of a submission and for their dependencies,
        because a small body may hold thousands."""
        if jobs >= COST_JOBS:
            self._charge_caller(caller, jobs / COST_JOBS)

    def _charge_caller(self, caller: Caller, cost: float) -> None:
        if caller.node is not None or caller.role == Role.JOIN:
            return
        self._tokens.charge(caller.sha256, cost)
        self._users.charge(caller.name, cost)


def _make_token_buckets(rate: float, clock: Callable[[], float]) -> TokenBuckets:
    return TokenBuckets(rate=rate, burst=max(1.0, rate * BURST_SECONDS), clock=clock)


def _too_many(buckets: TokenBuckets, who: str, wait: float) -> TooMany:
    return TooMany(
        f"{who} exceeds the limit of {buckets.rate:g} requests per second on average and "
        f"{buckets.burst:,.0f} at once (each {COST_BYTES // 1024} KiB of a body or an answer, and "
        f"each {COST_JOBS} submitted jobs, count as one more request)",
        hint=f"wait {max(1, ceil(wait))} s, or send fewer requests; an admin can raise the limit: "
        "corral up --user-requests N",
        retry_seconds=wait,
    )
