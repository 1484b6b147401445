"""Work of a head that leads for its gateway: it writes the routes, keeps the gateway
running, and reads its counters. Without a service it does nothing."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx2
import msgspec

from corral.agent.connection import first_of
from corral.api.job_tokens import tokens_of_running_jobs
from corral.api.settings import Seals
from corral.boot.fallback_keys import NeededKeys, needed_keys, read_fallback_keys
from corral.boot.gateway_process import GatewayProcess
from corral.boot.settings import write_atomically
from corral.control import Control
from corral.control.services.budget_deals import BudgetState
from corral.control.services.published_routes import OWN_GATEWAY
from corral.control.services.routes import RouteInputs, callers_of, token_of_caller
from corral.control.services.token_budgets import (
    budget_states,
    has_budgets,
    key_budget_states,
    month_of,
)
from corral.domain.errors import Trouble
from corral.domain.ids import JobId, TokenId
from corral.domain.ledger import UsageRecord, day_of
from corral.domain.users import Token, User
from corral.gateway.counting.kept_counters import kept_folder, read_kept
from corral.gateway.processes.certificate_watch import unverified_context
from corral.ports.log import HeadLogger
from corral.serve.batch_spec import batch_of
from corral.wire.caller_names import batch_caller
from corral.wire.gateway_counters import decode_counters
from corral.wire.gateway_routes import CallerEntry

LOOK_SECONDS: Final = 1.0  # at changes of tokens, at the process, and at its counters
# between two states, so that a burst of commits does not write one for each
PAUSE_SECONDS: Final = 0.05
START_SECONDS: Final = 0.1  # between two looks at a process that is being started
RELOAD_SECONDS: Final = 60.0  # after which users and tokens are read in any case
UNUSED_SECONDS: Final = 60.0  # without a service, after which the gateway ends
ANSWER_SECONDS: Final = 3.0
TOKEN_USE_SECONDS: Final = 60.0  # between two records of the use of one token
COUNTERS: Final = "/internal/counters"
log = HeadLogger("corral.gateway")


@dataclass(slots=True, kw_only=True)
class ServiceGateway:
    """The gateway of one term of leadership."""

    control: Control
    process: GatewayProcess
    seals: Seals
    quotas: Mapping[str, int] = field(default_factory=dict)  # of all users
    fallback_private_ok: bool = False
    _has_routes: bool = field(default=False)
    _callers: tuple[CallerEntry, ...] = field(default=())
    _users: Sequence[User] = field(default=())
    _budgeted: Sequence[Token] = field(default=())  # tokens with a budget
    _audited: int = field(default=-1)  # newest entry when the tokens were read
    _needed_keys: NeededKeys = field(default=frozenset())
    _inputs: RouteInputs = field(default_factory=RouteInputs)
    # usage of the month in the ledger, and of which state of it
    _usage: Sequence[UsageRecord] = field(default=())
    _usage_mark: tuple[float, int, float] | None = field(default=None)
    _read_again_at: float = field(default=float("-inf"))
    _used_tokens: set[TokenId] = field(default_factory=set)
    _uses_stored_at: dict[TokenId, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Work until cancelled."""
        if self.process.record is not None:
            self.control.traffic.changed.set()
        await first_of(self._keep_routes(), self._keep_process(), self._count())

    # -- routes ----------------------------------------------------------------------------------

    async def _keep_routes(self) -> None:
        changed = self.control.traffic.changed
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await changed.wait()
            except TimeoutError:
                pass
            changed.clear()
            try:
                await self._update_routes()
            except (Trouble, OSError) as error:
                log.warning("routes_not_written", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _update_routes(self) -> None:
        """Write the routes if they have changed. Raises: Trouble, OSError."""
        world, published = self.control.world, self.control.routes
        is_unused = not world.services and not self._has_routes
        if is_unused and self.process.record is None:
            return
        await self._read_callers()
        callers = (*self._callers, *self._job_callers())
        traffic, now = self.control.traffic, self.control.serving_seconds()
        dealt = traffic.deals.deal(callers, now)
        budgets = traffic.budgets.deal(await self._budget_states(), now)
        if published.update(self.control.world, callers, dealt, self._inputs, budgets):
            self._has_routes = False
        if not self._has_routes:
            text = published.text.decode()
            await asyncio.to_thread(write_atomically, self.process.routes_file, text)
            self._has_routes = True

    async def _budget_states(self) -> dict[str, BudgetState]:
        """Return the budgets of tokens and what was used of them. Raises: Trouble."""
        world, wall = self.control.world, self.control.clock.wall()
        tree = world.queues
        began_at, renews_at = month_of(wall)
        states: dict[str, BudgetState] = {}
        if self._budgeted:
            of_keys = self.control.traffic.tokens.month_tokens(world, wall)
            states = key_budget_states(self._budgeted, of_keys, renews_at)
        if not has_budgets(self._users, self.quotas, tree):
            return states
        recorded = tuple(count.at for count in world.gateway_counts.values())
        mark = (began_at, len(recorded), max(recorded, default=0.0))
        if mark != self._usage_mark:
            self._usage = await self.control.store.days(
                first=day_of(began_at), last=day_of(wall)
            )
            self._usage_mark = mark
        waiting = self.control.traffic.tokens.waiting(world, wall)
        used = (*self._usage, *waiting)
        others = budget_states(self._users, self.quotas, tree, used, renews_at)
        return states | others

    def _job_callers(self) -> tuple[CallerEntry, ...]:
        """Return the callers that are running jobs, by the tokens that they were given.
        Their requests go after those of people, and those of batches after all."""
        tokens = tokens_of_running_jobs(self.seals, self.control.world)
        now = self.control.clock.wall()
        return tuple(
            msgspec.structs.replace(
                caller, name=batch_caller(caller.name), priority="batch"
            )
            if self._is_batch(token_of_caller(caller.name))
            else msgspec.structs.replace(caller, priority="low")
            for caller in callers_of(tokens, self._users, now, self.quotas)
        )

    def _is_batch(self, token: TokenId) -> bool:
        """Return whether the token is that of a batch's job."""
        job = self.control.world.jobs.get(JobId(token.partition(".")[0]))
        return job is not None and batch_of(job.spec.run) is not None

    async def _read_callers(self) -> None:
        """Read users, tokens and the secrets of fallbacks again if any has changed, or a
        token has expired. Each change of them has its entry in the audit log. Raises:
        Trouble."""
        store, now = self.control.store, self.control.clock.wall()
        newest = await store.audit(limit=1)
        number = newest[0].number if newest else 0
        needed = needed_keys(self.control.world.services.values())
        if (number, needed) == (
            self._audited,
            self._needed_keys,
        ) and now < self._read_again_at:
            return
        tokens, users = await store.tokens(), await store.users()
        self._callers = callers_of(tokens, users, now, self.quotas)
        self._users = users
        self._budgeted = [
            token for token in tokens if token.tokens_per_month is not None
        ]
        self._inputs = RouteInputs(
            roles={user.name: user.role for user in users},
            fallback_keys=await read_fallback_keys(store, self.seals, needed),
            fallback_private_ok=self.fallback_private_ok,
        )
        self._needed_keys = needed
        self._audited = number
        self._read_again_at = min(now + RELOAD_SECONDS, _next_expiry(tokens, now))

    # -- process ---------------------------------------------------------------------------------

    async def _keep_process(self) -> None:
        clock = self.control.serving_seconds
        used_at = clock()
        while True:
            await asyncio.sleep(LOOK_SECONDS if self._is_settled() else START_SECONDS)
            if self.control.world.services:
                used_at = clock()
                if self._has_routes and await self._look_after():
                    self.control.traffic.started_gateway(clock())
            elif clock() - used_at >= UNUSED_SECONDS:
                used_at = clock()
                self.process.end()

    async def _look_after(self) -> bool:
        """Return whether the gateway was started now."""
        try:
            return await asyncio.to_thread(self.process.look_after)
        except OSError as error:  # the head does without
            log.error("gateway_not_started", error=str(error))
            return False

    def _is_settled(self) -> bool:
        """Return whether nothing is to be started soon."""
        return not self.control.world.services or self.process.record is not None

    # -- counters --------------------------------------------------------------------------------

    async def _count(self) -> None:
        # not a line for each request
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        async with httpx2.AsyncClient(
            timeout=ANSWER_SECONDS, trust_env=False, verify=unverified_context()
        ) as http:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                url = self.process.own_url if self.control.world.services else ""
                reported = await self._read_counters(http, url) if url else frozenset()
                await self._read_kept(reported)
                await self._record_token_uses()

    async def _record_token_uses(self) -> None:
        """Store when the tokens of callers were last used, for each at most once in
        TOKEN_USE_SECONDS."""
        clock, wall = self.control.serving_seconds(), self.control.clock.wall()
        self._used_tokens.update(self.control.traffic.take_used_tokens())
        for token in sorted(self._used_tokens):
            stored_at = self._uses_stored_at.get(token, float("-inf"))
            if clock - stored_at < TOKEN_USE_SECONDS:
                continue
            try:
                await self.control.store.use_token(token, at=wall)
            except Trouble as error:
                log.warning("token_use_not_stored", error=str(error))
                return
            self._used_tokens.discard(token)
            self._uses_stored_at[token] = clock

    async def _read_kept(self, reported: frozenset[str]) -> None:
        """Take the counters of processes that do not report any more, and remove the
        files of those that have ended, once the ledger has their counters."""
        folder = kept_folder(self.process.record_file)
        read_files = partial(read_kept, folder, reported, self.control.clock.wall())
        traffic, now = self.control.traffic, self.control.serving_seconds()
        for path, text, has_ended in await asyncio.to_thread(lambda: [*read_files()]):
            try:
                report = decode_counters(text)
            except ValueError as error:
                log.warning("counters_not_read", file=str(path), error=str(error))
                continue
            traffic.take_kept(report, now)
            if has_ended and traffic.tokens.is_recorded(self.control.world, report):
                path.unlink(missing_ok=True)

    async def _read_counters(
        self, http: httpx2.AsyncClient, url: str
    ) -> frozenset[str]:
        """Take the counters of the gateway that listens, and return its processes."""
        try:
            key = self.process.key_file.read_text().strip()
            headers = {"Authorization": f"Bearer {key}"}
            answer = await http.get(url + COUNTERS, headers=headers)
            answer.raise_for_status()
            report = decode_counters(answer.content)
        except (httpx2.HTTPError, OSError, ValueError) as error:
            log.warning("counters_not_read", error=repr(error))
            return frozenset()
        self.control.traffic.take(OWN_GATEWAY, report, self.control.serving_seconds())
        return frozenset(process.process for process in report.processes)


def _next_expiry(tokens: Iterable[Token], now: float) -> float:
    """Return when the next token expires."""
    ends = [token.expires_at for token in tokens if token.expires_at is not None]
    return min((end for end in ends if end > now), default=float("inf"))
