"""Quotas of kept logs. Bytes beyond a quota are cut, and a line in the log says so at
the place of the cut."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from corral.api.kept_logs import LogKeeper
from corral.api.log_sizes import measured, write_dropped
from corral.control import Control
from corral.domain.errors import Trouble
from corral.domain.ids import JobId, UserName
from corral.domain.log_quota import (
    KEPT_BYTES,
    KeptLogs,
    LogPart,
    cut_order,
    excess_bytes,
)
from corral.domain.observed_state import AttemptKey
from corral.domain.quota import RULES, Quota, Quotas
from corral.domain.users import User
from corral.ports.log import HeadLogger

LOOK_SECONDS: Final = 2.0
USERS_SECONDS: Final = 10.0  # for which limits of users are remembered
log = HeadLogger("corral.api")


class LogQuota:
    """Count of log bytes by user and by job. Logs that exceed a limit are cut."""

    def __init__(
        self, keeper: LogKeeper, control: Control, cluster: Mapping[str, int]
    ) -> None:
        """Args:
        cluster: Limits that apply to every user of the cluster."""
        self.keeper = keeper
        self._control = control
        self._cluster = cluster
        self._counted: dict[AttemptKey, int] = {}  # as they are in the sums
        self._attempts: defaultdict[JobId, set[AttemptKey]] = defaultdict(set)
        self._jobs: defaultdict[UserName, set[JobId]] = defaultdict(set)
        self._owners: dict[JobId, UserName] = {}
        self._dropped: Counter[JobId] = Counter()
        self._of_user: Counter[UserName] = Counter()
        self._of_job: Counter[JobId] = Counter()
        self._users: dict[UserName, User] = {}
        self._users_at = float("-inf")
        self._forgotten = -1
        self._is_measured = False
        # nothing more can be cut until it grows
        self._cut_to: dict[AttemptKey, int] = {}

    def used(self, user: UserName) -> int:
        """Return the bytes of all kept logs of the user."""
        return self._of_user[user]

    def dropped(self, user: UserName) -> int:
        """Return how many log bytes of the user's kept jobs were dropped because of
        quotas."""
        return sum(self._dropped[job] for job in self._jobs.get(user, ()))

    async def run(self) -> None:
        """Keep logs within their quotas, until cancelled."""
        while True:
            try:
                await self.enforce()
            except (OSError, Trouble) as error:
                log.warning("logs_not_bounded", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def enforce(self) -> None:
        """Update the sizes of changed logs, and cut the logs that exceed a quota of
        their job or user.

        Raises: OSError, Trouble.
        """
        sizes = self.keeper.sizes
        if not self._is_measured:
            bytes_by_attempt, dropped = await asyncio.to_thread(measured, sizes.root)
            sizes.take_in(bytes_by_attempt)
            self._dropped.update(dropped)
            self._is_measured = True
        self._drop_forgotten_jobs()
        for job in await self._count(sizes.take_changed()):
            quotas = await self._load_user_quotas(self._owners[job])
            await self._cut_logs_to_quota(
                Quota.JOB_LOG_BYTES, quotas, [job], self._of_job[job]
            )
        for user in [user for user, used_bytes in self._of_user.items() if used_bytes]:
            quotas = await self._load_user_quotas(user)
            await self._cut_logs_to_quota(
                Quota.LOG_BYTES, quotas, self._jobs[user], self._of_user[user]
            )

    async def _count(self, changed: Iterable[AttemptKey]) -> set[JobId]:
        """Update the sizes by job and user for attempts whose logs have changed. Return
        the jobs of these attempts."""
        jobs = set()
        for key in changed:
            if await self._learn_owner(key[0]):
                self._recount_attempt(key)
                jobs.add(key[0])
        return jobs

    async def _learn_owner(self, id: JobId) -> bool:
        if id in self._owners:
            return True
        job = self._control.world.jobs.get(id) or await self._control.store.job(id)
        if job is None:
            return False
        self._owners[id] = job.owner
        self._jobs[job.owner].add(id)
        return True

    def _recount_attempt(self, key: AttemptKey) -> None:
        size = self.keeper.sizes.bytes.get(key, 0)
        grown = size - self._counted.get(key, 0)
        self._counted[key] = size
        self._attempts[key[0]].add(key)
        self._of_job[key[0]] += grown
        self._of_user[self._owners[key[0]]] += grown

    async def _load_user_quotas(self, user: UserName) -> Quotas:
        now = self._control.clock.monotonic()
        if now - self._users_at >= USERS_SECONDS:
            self._users = {
                user.name: user for user in await self._control.store.users()
            }
            self._users_at = now
        known_user = self._users.get(user)
        if known_user is None:
            return Quotas.of_unknown(user, self._cluster)
        return Quotas(
            user=user,
            role=known_user.role,
            own=dict(known_user.limits),
            cluster=self._cluster,
        )

    async def _cut_logs_to_quota(
        self, quota: Quota, quotas: Quotas, jobs: Iterable[JobId], used: int
    ) -> None:
        """Cut logs of these jobs, which have `used` bytes, until their size is within
        the quota, or nothing more can be cut."""
        limit = quotas.limit(quota)
        excess = excess_bytes(used, limit)
        if not excess:
            return
        log_subject = (
            f"all logs of {quotas.user}"
            if quota == Quota.LOG_BYTES
            else "the logs of this job"
        )
        reason = (
            f"the limit of {log_subject} is {RULES[quota].amount(limit)} (see: corral user show "
            f"{quotas.user})"
        )
        kept_logs = [
            KeptLogs(key=key, part=self._part(key))
            for job in jobs
            for key in self._keys(job)
        ]
        for kept_log in cut_order(kept_logs):
            if excess <= 0:
                break
            if self._cut_to.get(kept_log.key) != self.keeper.sizes.bytes.get(
                kept_log.key
            ):
                excess -= await self._cut_attempt(kept_log, reason)

    def _keys(self, job: JobId) -> list[AttemptKey]:
        return list(self._attempts.get(job, ()))

    async def _cut_attempt(self, kept: KeptLogs, why: str) -> int:
        """Cut the log of each rank of the attempt. Other tasks of the event loop run
        between two ranks. Return how many bytes were freed."""
        freed = 0
        for rank in self.keeper.ranks(*kept.key):
            freed += self.keeper.cut((*kept.key, rank), KEPT_BYTES[kept.part], why)
            await asyncio.sleep(0)
        self._cut_to[kept.key] = self.keeper.sizes.bytes.get(kept.key, 0)
        self._recount_attempt(kept.key)
        if freed:
            job = kept.key[0]
            self._dropped[job] += freed
            write_dropped(self.keeper.sizes.root, job, self._dropped[job])
            log.info("logs_cut", job=job, attempt=kept.key[1], bytes=freed)
        return freed

    def _part(self, key: AttemptKey) -> LogPart:
        job = self._control.world.jobs.get(key[0])
        newest_attempt = (
            job.attempt if job is not None else max(self._attempts[key[0]])[1]
        )
        if key[1] < newest_attempt:
            return LogPart.EARLIER_ATTEMPT
        is_over = job is None or job.is_final
        return LogPart.ENDED_JOB if is_over else LogPart.UNFINISHED_JOB

    def _drop_forgotten_jobs(self) -> None:
        """Remove jobs that the head no longer keeps from the counts. Their logs are
        deleted elsewhere."""
        if self._forgotten == self._control.keeping.forgotten:
            return
        self._forgotten = self._control.keeping.forgotten
        for job in [job for job in self._owners if self._control.world.forgot(job)]:
            owner = self._owners.pop(job)
            self._jobs[owner].discard(job)
            self._of_user[owner] -= self._of_job.pop(job, 0)
            self._dropped.pop(job, None)
            for key in self._attempts.pop(job, ()):
                self._counted.pop(key, None)
                self._cut_to.pop(key, None)
                self.keeper.sizes.bytes.pop(key, None)
