"""Quota usage and limits of every user, and the check before a request takes more."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from corral.api.auth import Caller
from corral.control import Control
from corral.control.services.token_budgets import month_of
from corral.domain.ids import UserName
from corral.domain.job import JobSpec
from corral.domain.ledger import day_of
from corral.domain.quota import Quota, Quotas
from corral.domain.spec_content import LARGE_CHARACTERS, size_of
from corral.domain.users import Token, User


@dataclass(slots=True, kw_only=True)
class QuotaDesk:
    """Quota checks of one head. `cluster` holds the limits that apply to every user.
    Amounts that current requests have reserved also count as used."""

    control: Control
    cluster: Mapping[str, int]
    logs: Callable[[UserName], int] = lambda user: 0  # bytes that the head keeps
    _taking: Counter[tuple[UserName, Quota]] = field(default_factory=Counter)

    @property
    def under_way(self) -> Mapping[tuple[UserName, Quota], int]:
        """Return the amounts that current requests have reserved."""
        return self._taking

    def of_caller(self, caller: Caller) -> Quotas:
        """Return the quotas of the caller."""
        own_limits = dict(caller.limits)
        return Quotas(
            user=caller.name, role=caller.role, own=own_limits, cluster=self.cluster
        )

    def of_user(self, user: User) -> Quotas:
        """Return the quotas of a user."""
        own_limits = dict(user.limits)
        return Quotas(
            user=user.name, role=user.role, own=own_limits, cluster=self.cluster
        )

    async def used(self, user: UserName) -> dict[Quota, int]:
        """Return how much of each quota with a running total the user has used."""
        store = self.control.store
        user_holdings = await store.holdings(user)
        now = self.control.clock.wall()
        return {
            Quota.JOBS: self.control.world.unfinished_of(user),
            Quota.SPEC_BYTES: user_holdings.spec_bytes,
            Quota.UPLOAD_BYTES: user_holdings.upload_bytes,
            Quota.LOG_BYTES: self.logs(user),
            Quota.SECRETS: user_holdings.secrets,
            Quota.SECRET_BYTES: user_holdings.secret_bytes,
            Quota.TOKENS: sum(
                is_valid(token, user, now) for token in await store.tokens()
            ),
            Quota.TOKENS_PER_MONTH: await self._month_tokens(user, now),
        }

    async def _month_tokens(self, user: UserName, now: float) -> int:
        """Return how many tokens of services the user has used since the calendar month
        (UTC) of `now` began."""
        control = self.control
        began_at, _ = month_of(now)
        recorded = await control.store.days(first=day_of(began_at), last=day_of(now))
        waiting = control.traffic.tokens.waiting(control.world, now)
        tokens = sum(
            record.amounts.service_tokens
            for record in (*recorded, *waiting)
            if record.user == user
        )
        return round(tokens)

    @contextmanager
    def taking(
        self, quotas: Quotas, quota: Quota, *, used: int, asked: int
    ) -> Iterator[None]:
        """Reserve the amount `asked` of the quota while the body runs. Concurrent
        requests then count it as used.

        Raises: OverQuota.
        """
        key = (quotas.user, quota)
        quotas.check(quota, used=used + self._taking[key], asked=asked)
        self._taking[key] += asked
        try:
            yield
        finally:
            self._taking[key] -= asked
            if not self._taking[key]:
                del self._taking[key]

    async def submitting(
        self, caller: Caller, specs: Sequence[JobSpec], size: int
    ) -> AbstractContextManager[object]:
        """Reserve the quotas that the jobs of this submission take. `size` is the total
        size of their large specs.

        Raises: OverQuota.
        """
        quotas, user = self.of_caller(caller), caller.name
        arrays = Counter(
            spec.array_place for spec in specs if spec.array_index is not None
        )
        quotas.check(Quota.ARRAY, used=0, asked=max(arrays.values(), default=0))
        stored = (await self.control.store.holdings(user)).spec_bytes if size else 0
        jobs = self.control.world.unfinished_of(user)
        with ExitStack() as stack:
            stack.enter_context(
                self.taking(quotas, Quota.JOBS, used=jobs, asked=len(specs))
            )
            stack.enter_context(
                self.taking(quotas, Quota.SPEC_BYTES, used=stored, asked=size)
            )
            return stack.pop_all()


def stored_characters(specs: Sequence[JobSpec]) -> int:
    """Return the total characters of the large specs. Jobs of an array share one spec,
    which counts once."""
    sizes = {(id(spec.env), id(spec.run)): spec for spec in specs}.values()
    return sum(size for size in map(size_of, sizes) if size >= LARGE_CHARACTERS)


def is_valid(token: Token, user: UserName, now: float) -> bool:
    """Return whether the token belongs to this user and is valid now."""
    has_ended = token.revoked_at is not None or (token.expires_at or now + 1) <= now
    return token.user == user and token.node is None and not has_ended
