"""The gate before every route: host, token, rights, size; and behind it, no error gets out raw."""

from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from corral.api.auth import Failures, check_host, identify
from corral.api.body import check_headers, read_json
from corral.api.errors import answer, bug
from corral.api.rights import OPEN, Rights
from corral.control import Control
from corral.domain.errors import CorralError, Unauthorised

log = structlog.get_logger("corral.api")
SNAPSHOTS: Final = "/v1/snapshots/"


class Gate:
    """Wraps the app. Rights are checked here alone, by the route that will answer."""

    def __init__(
        self, app: ASGIApp, *, control: Control, rights: Rights, hosts: frozenset[str], most: int
    ) -> None:
        self._app = app
        self._control = control
        self._rights = rights
        self._hosts = hosts
        self._most_bytes = most
        self._failures = Failures(clock=control.clock.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        begun = _Begun(send)
        try:
            receive = await self._let_in(scope, receive)
            await self._app(scope, receive, begun)
        except CorralError as error:
            await self._refuse(answer(error), scope, receive, begun)
        except Exception as error:
            await self._refuse(bug(error, self._control.clock.fresh_id()), scope, receive, begun)

    async def _let_in(self, scope: Scope, receive: Receive) -> Receive:
        """Raises: WrongHost, Unauthorised, TooMany, Forbidden, and what body.py raises."""
        check_host(scope["headers"], self._hosts)
        if scope["path"] == OPEN:
            return receive
        try:
            caller = await identify(self._control.store, scope["headers"])
        except Unauthorised as error:
            address = (scope.get("client") or ("", 0))[0]
            raise self._failures.note(address, error) from None
        self._rights.check(scope, caller)
        scope["corral.caller"] = caller
        if scope["type"] != "http":
            return receive
        if scope["method"] not in ("GET", "HEAD"):
            log.info("asked", by=caller.name, method=scope["method"], path=scope["path"])
        if scope["path"].startswith(SNAPSHOTS):
            check_headers(scope["headers"], self._most_bytes)
            return receive
        return await read_json(scope, receive)

    async def _refuse(
        self, response: Response, scope: Scope, receive: Receive, begun: "_Begun"
    ) -> None:
        """Answer, unless an answer has begun: then the connection is broken off, never faked."""
        if begun.begun:
            raise ConnectionAbortedError(f"{scope['path']}: cut short by an error")
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, begun).send_denial_response(response)
        else:
            await response(scope, receive, begun)


class _Begun:
    """Sends, and knows whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)
