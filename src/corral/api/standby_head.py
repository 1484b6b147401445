"""A standby head. It answers only requests about itself, and forwards all others to the
leader."""

import asyncio
from typing import Final

from pydantic import ValidationError
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from corral.api.auth import (
    bearer,
    caller_by,
    check_host,
    check_kind,
    hosts_of,
    token_digest,
)
from corral.api.begun_response import Begun
from corral.api.errors import RequestInvalid, answer, bug
from corral.api.head_proof import Proofs
from corral.api.leader_proxy import WAIT, Forwarder
from corral.api.request_body import read_json
from corral.api.route_rights import HEALTH
from corral.api.settings import ApiSettings
from corral.domain.errors import Conflict, CorralError, NoLeader, Unauthorised
from corral.ports.clock import Clock
from corral.ports.log import HeadLogger
from corral.ports.store import Store
from corral.wire import api
from corral.wire.head_proof import PROOF

log = HeadLogger("corral.api")
DOWN: Final = ("POST", "/v1/head/down")


class Standby:
    """The ASGI app of a head that does not lead. `forwarder` sends requests to the
    leader; None if no head leads now."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        settings: ApiSettings,
        forwarder: Forwarder | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._forwarder = forwarder
        self._hosts = hosts_of(settings.url, settings.hosts)
        self._proofs = Proofs(store, settings.seals)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = Begun(send)
        try:
            check_host(scope["headers"], self._hosts)
            await self._route_request(scope, receive, begun)
        except CorralError as error:
            await _send_refusal(answer(error), scope, receive, begun)
        except Exception as error:
            await _send_refusal(
                bug(error, self._clock.fresh_id()), scope, receive, begun
            )

    async def _route_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request about this head, and forward any other request to the
        leader.

        Raises: WrongHost, NoLeader, and the errors that refuse `down`.
        """
        if scope["path"] == HEALTH:
            # only a token shows the leader
            json_response = JSONResponse({"status": "standing by"})
            await json_response(scope, receive, send)
        elif scope["path"] == PROOF:
            await (await self._proofs.answer(scope))(scope, receive, send)
        elif scope["type"] == "http" and (scope["method"], scope["path"]) == DOWN:
            await (await self._down(scope, receive))(scope, receive, send)
        elif self._forwarder is None:
            raise NoLeader("no head is the leader at the moment", hint=WAIT)
        elif scope["type"] == "websocket":
            await self._forwarder.websocket(scope, receive, send)
        else:
            await self._forwarder.http(scope, receive, send)

    async def _down(self, scope: Scope, receive: Receive) -> Response:
        """Handle the request to stop this standby head; jobs continue under the leader."""
        now = self._clock.wall()
        stored_identity = await self._store.identity(
            token_digest(bearer(scope["headers"]))
        )
        if stored_identity is None:
            raise Unauthorised("this cluster does not know the token")
        caller = caller_by(stored_identity, now).asking(DOWN)
        check_kind(caller, in_cookie=False)
        caller.check_route()
        message = await (await read_json(scope, receive))()
        try:
            head_down = api.HeadDown.model_validate_json(message["body"])
        except ValidationError as error:
            raise RequestInvalid(error.errors()[0]["msg"]) from None
        if head_down.jobs == "stop" and await self._store.jobs(final=False, limit=1):
            raise Conflict(
                "this head is a standby and cannot stop jobs; only the leader can",
                hint="to stop only this head, run: corral down --leave",
            )
        await self._store.record(
            caller.entry(now, detail=f"a standby; jobs: {head_down.jobs}")
        )
        asyncio.get_running_loop().call_soon(self._settings.stop)
        return JSONResponse({"jobs": head_down.jobs}, status_code=202)


class Front:
    """ASGI application of a head's port. It passes requests to the app of the leader or
    to that of a standby.

    When the app changes, open requests of the previous one are ended. No client then
    waits for a head that no longer leads.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._open: set[asyncio.Timeout] = set()

    def turn(self, app: ASGIApp) -> None:
        self._app = app
        open_, self._open = self._open, set()
        for limit in open_:
            limit.reschedule(asyncio.get_running_loop().time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        begun = Begun(send)
        limit: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(None) as limit:
                self._open.add(limit)
                await self._app(scope, receive, begun)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            no_leader_error = NoLeader("this head is no longer the leader", hint=WAIT)
            await _send_refusal(answer(no_leader_error), scope, receive, begun)
        finally:
            if limit is not None:
                self._open.discard(limit)


async def _send_refusal(
    response: Response, scope: Scope, receive: Receive, begun: Begun
) -> None:
    """Send the refusal. If a response or WebSocket has begun already, end it, so that
    the client requests it again."""
    if scope["type"] == "websocket":
        if not begun.begun:
            await WebSocket(scope, receive, begun).send_denial_response(response)
        else:
            await begun(
                {"type": "websocket.close", "code": 1013, "reason": "connect again"}
            )
    elif not begun.begun:
        await response(scope, receive, begun)
    else:
        await begun({"type": "http.response.body", "body": b"", "more_body": False})
