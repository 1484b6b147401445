"""Connections that are open, by token. When a token becomes invalid, its connections
end within about a second, whichever process has changed the token. A stream thus lasts
no longer than the right to read it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from corral.api.auth import Caller, JobTokens, caller_by
from corral.domain.errors import Trouble, Unauthorised
from corral.domain.users import Role
from corral.ports.log import HeadLogger
from corral.ports.store import Store
from corral.ports.user_store import Identity

log = HeadLogger("corral.api")
LOOK_SECONDS: Final = 1.0


@dataclass(eq=False, slots=True)
class OpenConnection:
    """One open connection. `ended` is the error with which it was closed; None while it
    is open."""

    caller: Caller
    limit: asyncio.Timeout
    ended: Unauthorised | None = None


class Sessions:
    """Registry of all open connections. Once a second, it checks whether their tokens
    are still valid."""

    def __init__(
        self, store: Store, wall: Callable[[], float], jobs: JobTokens
    ) -> None:
        self._store = store
        self._wall = wall
        self._jobs = jobs
        self._open: set[OpenConnection] = set()
        self._looking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def held(self, caller: Caller) -> AsyncIterator[None]:
        """Run the body for this caller, and cancel it when the caller's token becomes
        invalid.

        Raises: Unauthorised, with the reason.
        """
        session: OpenConnection | None = None
        try:
            async with asyncio.timeout(None) as limit:
                session = OpenConnection(caller, limit)
                self._open.add(session)
                self._look()
                yield
        except TimeoutError:
            if session is None or session.ended is None:
                raise
            raise session.ended from None
        finally:
            if session is not None:
                self._open.discard(session)

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on())

    async def _look_on(self) -> None:
        while self._open:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look_once()
            except Trouble as trouble:
                # what may not be read now is looked at a second later
                log.warning("sessions_not_looked_at", error=trouble.message)

    async def _look_once(self) -> None:
        # one that is opened while the store looks was just let in
        sessions = list(self._open)
        callers = {session.caller.sha256: session.caller for session in sessions}
        kept_digests = [
            digest for digest, caller in callers.items() if caller.job is None
        ]
        identities = dict(
            zip(kept_digests, await self._store.identities(kept_digests), strict=True)
        )
        for digest, caller in callers.items():
            if caller.job is not None:
                identities[digest] = await self._jobs.identity(
                    caller.job.attempt, digest
                )
        now = self._wall()
        for session in sessions:
            if session not in self._open or session.ended is not None:
                # it closed while the store looked, or it is ending: its limit is final
                continue
            caller = session.caller
            session.ended = _session_end_reason(
                identities.get(caller.sha256), caller.role, now
            )
            if session.ended is not None:
                session.limit.reschedule(asyncio.get_running_loop().time())


def _session_end_reason(
    identity: Identity | None, role: Role, now: float
) -> Unauthorised | None:
    """Return the reason to end a connection that was opened in this role; None if the
    token is still valid for it."""
    if identity is None:
        return Unauthorised("the token of this connection is no longer valid")
    try:
        is_now = caller_by(identity, now).role
    except Unauthorised as error:
        return error
    if is_now != role:
        return Unauthorised(
            f"the role of this connection's token changed from {role} to {is_now}",
            hint="connect again",
        )
    return None
