"""The gate before every route: host, token, rights, size; and behind it, no error gets out raw."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from corral.api.auth import Caller, Failures, JobTokens, check_host, identify
from corral.api.begun import Begun
from corral.api.body import check_headers, read_json
from corral.api.cookies import cookie_of, shown
from corral.api.errors import REFUSED, answer, bug
from corral.api.rights import OPEN, RIGHTS, Rights
from corral.api.sessions import Sessions
from corral.control import Control
from corral.domain.errors import CorralError, Refusal, Trouble, Unauthorised

log = structlog.get_logger("corral.api")
SNAPSHOTS: Final = "/v1/snapshots/"
USED_SECONDS: Final = 60.0  # the use of a token is written down no more often
REVOKED: Final = 4401  # the close code of a WebSocket whose token lets in no more
Talk = Callable[[WebSocket], Awaitable[None]]
_ON_BYTES: Final = 200  # of what was asked for, in a line of the audit log


class Gate:
    """Wraps the app. Rights are checked here alone, by the route that will answer.

    `talks`: of WebSockets that thousands hold open, by their path. They are let in as all others,
    and then nothing of the app stands between the gate and the talk: each of its layers costs
    every connection some memory, and every message some time (0063).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        control: Control,
        rights: Rights,
        hosts: frozenset[str],
        most: int,
        jobs: JobTokens,
        talks: Mapping[str, Talk],
    ) -> None:
        self._app = app
        self._talks = talks
        self._control = control
        self._rights = rights
        self._hosts = hosts
        self._most_bytes = most
        self._failures = Failures(clock=control.clock.monotonic)
        self._jobs = jobs
        self._sessions = Sessions(control.store, control.clock.wall, jobs)
        self._used: dict[str, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        begun = Begun(send)
        refused = scope[REFUSED] = []  # by the route itself; it has been answered then
        try:
            receive = await self._let_in(scope, receive)
            if scope["path"] in OPEN:
                await self._app(scope, receive, begun)
            else:
                talk = self._talks.get(scope["path"]) if scope["type"] == "websocket" else None
                async with self._sessions.held(scope["corral.caller"]):
                    if talk is not None:
                        await talk(WebSocket(scope, receive, begun))
                    else:
                        await self._app(scope, receive, begun)
        except CorralError as error:
            refused.append(error)
            await self._refuse(error, scope, receive, begun)
        except Exception as error:
            await self._answer(bug(error, self._control.clock.fresh_id()), scope, receive, begun)
        finally:
            await self._write_down(scope, refused)

    async def _let_in(self, scope: Scope, receive: Receive) -> Receive:
        """Raises: WrongHost, Unauthorised, TooMany, Forbidden, and what body.py raises."""
        check_host(scope["headers"], self._hosts)
        if scope["path"] in OPEN:
            return receive
        caller = await self._identified(scope)
        wanted = self._rights.wanted(scope)
        if wanted is not None:
            caller = caller.asking(wanted.key)
            scope["corral.on"] = wanted.on
        scope["corral.caller"] = caller
        if wanted is not None:
            caller.check_route()
        if scope["type"] != "http":
            return receive
        if scope["method"] not in ("GET", "HEAD"):
            log.info("asked", by=caller.name, method=scope["method"], path=scope["path"])
        if scope["path"].startswith(SNAPSHOTS):
            check_headers(scope["headers"], self._most_bytes)
            return receive
        return await read_json(scope, receive)

    async def _identified(self, scope: Scope) -> Caller:
        """Raises: Unauthorised, TooMany, StoreTrouble."""
        now = self._control.clock.wall()
        try:
            secret = shown(scope["headers"], cookie_of(self._control.world.cluster))
            caller = await identify(self._control.store, secret, now, self._jobs)
        except Unauthorised as error:
            address = (scope.get("client") or ("", 0))[0]
            raise self._failures.note(address, error) from None
        if (
            caller.attempt is None
            and now - self._used.get(caller.token, float("-inf")) >= USED_SECONDS
        ):
            self._used[caller.token] = now
            with suppress(Trouble):  # what may only be read now can still be read
                await self._control.store.use_token(caller.token, at=now)
        return caller

    async def _write_down(self, scope: Scope, refused: list[CorralError]) -> None:
        """A change that was refused goes into the audit log by the refusal's code alone: its
        words may hold what was sent. What was granted is there already, with the change."""
        caller: Caller | None = scope.get("corral.caller")
        errors = [error for error in refused if isinstance(error, Refusal)]
        if caller is None or not errors or caller.key not in RIGHTS:
            return
        if not RIGHTS[caller.key].what:
            return
        now, on = self._control.clock.wall(), str(scope.get("corral.on", ""))[:_ON_BYTES]
        entry = caller.entry(now, on=on, accepted=False, detail=errors[0].code)
        try:
            await self._control.store.record(entry)
        except CorralError as error:
            log.error("not_written_down", by=caller.name, what=entry.what, error=error.message)

    async def _refuse(
        self, error: CorralError, scope: Scope, receive: Receive, begun: "Begun"
    ) -> None:
        """Answer; what has begun already, and is the caller's no more, is ended instead."""
        if not begun.begun or not isinstance(error, Unauthorised):
            await self._answer(answer(error), scope, receive, begun)
        elif scope["type"] == "websocket":
            reason = error.message.encode()[:120].decode(errors="ignore")
            with suppress(RuntimeError, OSError):  # it may be closed already
                await begun({"type": "websocket.close", "code": REVOKED, "reason": reason})
        else:
            await begun({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(
        self, response: Response, scope: Scope, receive: Receive, begun: "Begun"
    ) -> None:
        """Answer, unless an answer has begun: then the connection is broken off, never faked."""
        if begun.begun:
            raise ConnectionAbortedError(f"{scope['path']}: cut short by an error")
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, begun).send_denial_response(response)
        else:
            await response(scope, receive, begun)
