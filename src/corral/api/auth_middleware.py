"""The gate before every route, which checks host, token, rights and size. It also turns
every error of a route into an answer without internal details."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from corral.api.auth import (
    Caller,
    JobTokens,
    check_host,
    check_kind,
    check_page,
    identify,
    source_of,
    token_digest,
)
from corral.api.begun_response import Begun
from corral.api.cookies import page_secret, session_cookie, shown
from corral.api.errors import REFUSED, TooMany, answer, bug
from corral.api.failed_log_ins import FailedLogIns
from corral.api.failures import HOLD_SECONDS, FailureLimits
from corral.api.head_proof import Proofs
from corral.api.request_body import BODY_SIZE, OPEN_BYTES, check_headers, read_json
from corral.api.request_rates import Rates
from corral.api.route_rights import NO_MORE, OPEN, RIGHTS, Key, Roles, RouteRights
from corral.api.sessions import Sessions
from corral.control import Control
from corral.domain.errors import CorralError, Refusal, Trouble, Unauthorised
from corral.domain.ids import QueueName
from corral.domain.users import Role, is_near_end
from corral.ingress.connections import connection_of
from corral.ports.log import HeadLogger
from corral.wire.agent_routes import RENEW
from corral.wire.head_proof import PROOF

log = HeadLogger("corral.api")
SNAPSHOTS: Final = "/v1/snapshots/"
FILES_PATH: Final = "/v1/files"
BATCHES: Final = "/v1/batches/"
RESULTS: Final = "/results/"
MOST_RESULT_BYTES: Final = 2_000_000_000
USED_SECONDS: Final = 60.0  # the use of a token is written down no more often
# the header that says when, in seconds since 1970
TOKEN_ENDS: Final = b"corral-token-ends"
REVOKED: Final = 4401  # the close code of a WebSocket whose token lets in no more
Talk = Callable[[WebSocket], Awaitable[None]]
_ON_BYTES: Final = 200  # of what was asked for, in a line of the audit log


def is_upload(scope: Scope) -> bool:
    """Return whether the route of the request reads the body piece by piece."""
    path: str = scope["path"]
    if path == FILES_PATH:
        return bool(scope["method"] == "POST")
    return path.startswith(SNAPSHOTS) or (
        path.startswith(BATCHES) and RESULTS in path and scope["method"] == "PUT"
    )


class Gate:
    """ASGI middleware that wraps the application and checks the rights of the route
    that will answer.

    Rights are checked only here.

    `more`: roles that the cluster's settings allow to call a route, in addition to the
    table. `talks`: handlers of WebSockets that thousands of clients hold open, by path.
    They are authenticated like all others. After that, the gate passes them directly to
    their handler, because each layer of the application costs memory per connection and
    time per message (0063).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        control: Control,
        rights: RouteRights,
        hosts: frozenset[str],
        most: int,
        jobs: JobTokens,
        log_ins: FailedLogIns,
        more: Mapping[Key, Roles],
        proofs: Proofs,
        is_tls: bool,
        rates: Rates,
        talks: Mapping[str, Talk],
    ) -> None:
        self._app = app
        self._talks = talks
        self._control = control
        self._rights = rights
        self._more = more
        self._is_tls = is_tls
        self._hosts = hosts
        self._most_bytes = most
        self._failures = FailureLimits(
            clock=control.clock.monotonic, digests=control.store.token_digests
        )
        self._jobs = jobs
        self._log_ins = log_ins
        self._proofs = proofs
        self._rates = rates
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
            self._tell_of_end(scope, begun)
            if scope["path"] == PROOF:
                await (await self._proofs.answer(scope))(scope, receive, begun)
            elif scope["path"] in OPEN:
                await self._app(scope, receive, begun)
            else:
                talk = (
                    self._talks.get(scope["path"])
                    if scope["type"] == "websocket"
                    else None
                )
                async with self._held(scope):
                    if talk is not None:
                        await talk(WebSocket(scope, receive, begun))
                    else:
                        await self._app(scope, receive, begun)
        except CorralError as error:
            refused.append(error)
            await self._send_refusal(error, scope, receive, begun)
        except Exception as error:
            await self._send_answer(
                bug(error, self._control.clock.fresh_id()), scope, receive, begun
            )
        finally:
            self._charge_caller(scope, begun)
            await self._write_down(scope, refused)

    def _held(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Return a context that ends a long request when its caller's token becomes
        invalid.

        A change other than an upload is always finished once its body was read. Such a
        change can end the caller's own token, as the log-in by a link does. A 401 would
        then deny a change that was made.
        """
        is_change = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD")
        if is_change and not is_upload(scope):
            return nullcontext()
        return self._sessions.held(scope["corral.caller"])

    async def _let_in(self, scope: Scope, receive: Receive) -> Receive:
        """Check host, token, rate, rights and body of a request; return the function
        that receives its body. Raises: WrongHost, Unauthorised, TooMany, Forbidden, and
        the exceptions of body.py."""
        check_host(scope["headers"], self._hosts)
        if scope["path"] in OPEN:
            if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
                return receive
            return await read_json(scope, receive, OPEN_BYTES)
        caller = await self._identified(scope)
        self._rates.check(caller)
        caller = replace(
            caller, source=source_of(scope), operated=self._operated_by(caller)
        )
        required_right = self._rights.wanted(scope)
        if required_right is not None:
            caller = caller.asking(
                required_right.key, self._more.get(required_right.key, NO_MORE)
            )
            scope["corral.on"] = required_right.on
        scope["corral.caller"] = caller
        if required_right is not None:
            caller.check_route()
        if scope["type"] != "http":
            return receive
        if scope["method"] not in ("GET", "HEAD"):
            log.info(
                "asked", by=caller.name, method=scope["method"], path=scope["path"]
            )
        if is_upload(scope):
            is_snapshot = scope["path"].startswith(SNAPSHOTS)
            most_bytes = self._most_bytes if is_snapshot else MOST_RESULT_BYTES
            check_headers(scope["headers"], most_bytes)
            return receive
        return await read_json(scope, receive)

    def _tell_of_end(self, scope: Scope, begun: Begun) -> None:
        """Add a header with the token's expiry to the answer, if the token expires
        soon."""
        caller: Caller | None = scope.get("corral.caller")
        if caller is None or caller.expires_at is None or caller.job is not None:
            return
        if is_near_end(
            caller.created_at, caller.expires_at, self._control.clock.wall()
        ):
            begun.headers.append((TOKEN_ENDS, b"%d" % caller.expires_at))

    def _operated_by(self, caller: Caller) -> Set[QueueName]:
        """Return the queues of which the caller is an operator; empty unless the caller
        has the role `user` and a token that is not a job's."""
        if caller.role != Role.USER or caller.job is not None:
            return frozenset()
        return self._control.world.queues.operated_by(caller.name)

    async def _identified(self, scope: Scope) -> Caller:
        """Return the caller that the request's token or cookie identifies. Raises:
        Unauthorised, TooMany, StoreTrouble."""
        now = self._control.clock.wall()
        address, connection = source_of(scope), connection_of(scope)
        try:
            cookie = session_cookie(self._control.world.cluster, is_tls=self._is_tls)
            secret, in_cookie = shown(scope["headers"], cookie)
            if self._jobs.attempt_of(secret) is None:
                await self._failures.check(address, token_digest(secret))
            renews = scope["path"] == RENEW
            caller = await identify(
                self._control.store, secret, now, self._jobs, renews=renews
            )
            check_kind(caller, in_cookie=in_cookie)
            if in_cookie:
                check_page(caller, page_secret(scope["headers"]))
        except (Unauthorised, TooMany) as error:
            self._log_ins.note(address, error.code, getattr(error, "about", ""))
            refusal = self._failures.note(address, error)
            if isinstance(refusal, TooMany) and connection is not None:
                connection.wait()  # it may be evicted for others
                await asyncio.sleep(HOLD_SECONDS)
            raise refusal from None
        if connection is not None:
            connection.prove(caller.holder)
        if (
            caller.job is None
            and now - self._used.get(caller.token, float("-inf")) >= USED_SECONDS
        ):
            self._used[caller.token] = now
            with suppress(Trouble):  # what may only be read now can still be read
                await self._control.store.use_token(caller.token, at=now)
        return caller

    def _charge_caller(self, scope: Scope, begun: Begun) -> None:
        caller: Caller | None = scope.get("corral.caller")
        if caller is not None:
            self._rates.charge(caller, scope.get(BODY_SIZE, 0) + begun.answer_bytes)

    async def _write_down(self, scope: Scope, refused: list[CorralError]) -> None:
        """Record a refused change in the audit log, with the code of the refusal only,
        because the refusal's text may contain what the client sent. An accepted change
        is recorded with the change itself, not here."""
        caller: Caller | None = scope.get("corral.caller")
        errors = [error for error in refused if isinstance(error, Refusal)]
        if caller is None or not errors or caller.key not in RIGHTS:
            return
        if not RIGHTS[caller.key].what:
            return
        now, on = (
            self._control.clock.wall(),
            str(scope.get("corral.on", ""))[:_ON_BYTES],
        )
        entry = caller.entry(now, on=on, code=errors[0].code)
        try:
            await self._control.store.record(entry)
        except CorralError as error:
            log.error(
                "not_written_down", by=caller.name, what=entry.what, error=error.message
            )

    async def _send_refusal(
        self, error: CorralError, scope: Scope, receive: Receive, begun: "Begun"
    ) -> None:
        """Answer with the refusal. If an answer has begun already, end it, because the
        caller has lost the right to receive it."""
        if not begun.begun or not isinstance(error, Unauthorised):
            await self._send_answer(answer(error, scope["path"]), scope, receive, begun)
        elif scope["type"] == "websocket":
            reason = error.message.encode()[:120].decode(errors="ignore")
            with suppress(RuntimeError, OSError):  # it may be closed already
                await begun(
                    {"type": "websocket.close", "code": REVOKED, "reason": reason}
                )
        else:
            await begun({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_answer(
        self, response: Response, scope: Scope, receive: Receive, begun: "Begun"
    ) -> None:
        """Send the answer. If another answer has begun already, break off the
        connection, so that a cut answer does not look complete."""
        if begun.begun:
            raise ConnectionAbortedError(f"{scope['path']}: cut short by an error")
        connection = connection_of(scope)
        if connection is not None and not connection.is_proven:
            # a flood has to reconnect each time
            response.headers["Connection"] = "close"
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, begun).send_denial_response(response)
        else:
            await response(scope, receive, begun)
