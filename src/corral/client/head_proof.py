"""Proof that a connection of the HTTP client leads to the right head. The proof comes
before a token is sent."""

from typing import TYPE_CHECKING, Any, Final

from corral.client.request_rules import CONNECT_TIMEOUT, READ_TIMEOUT
from corral.domain.errors import WrongHead
from corral.wire.head_proof import (
    PIECE_BYTES,
    PROOF_SECONDS,
    Address,
    Challenge,
    needs_proof,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    import httpx2

    Ask = Callable[[httpx2.Request, Address], Challenge]

OPENED: Final = "connection.connect_tcp.complete"  # httpx's event for a new connection


def by_bearer(request: "httpx2.Request", address: Address) -> Challenge:
    """Return the challenge to the head for the bearer token in the request's header."""
    token = request.headers["Authorization"].removeprefix("Bearer ")
    return Challenge.by_token(str(request.url), token, address)


def http_client(trusted: "ssl.SSLContext") -> "httpx2.Client":
    """Return a client that sends a token only to a head that has proven itself."""
    import httpx2

    timeout = httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
    return httpx2.Client(
        timeout=timeout, trust_env=False, verify=trusted, event_hooks=hooks()
    )


def async_http_client(trusted: "ssl.SSLContext") -> "httpx2.AsyncClient":
    """Return an asyncio HTTP client whose connections begin with a proof of the head."""
    import httpx2

    timeout = httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
    return httpx2.AsyncClient(
        timeout=timeout, trust_env=False, verify=trusted, event_hooks=async_hooks()
    )


def was_refused(error: Exception) -> bool:
    """Return whether the error shows that the request was certainly not sent: no
    connection was made, or the head did not prove its identity."""
    import httpx2

    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | WrongHead)


def hooks(ask: "Ask" = by_bearer) -> dict[str, list["Callable[..., Any]"]]:
    """Return the event hooks for an httpx2.Client. They verify the head on each new
    connection, before the request is sent.

    If the proof fails, the request raises InsecureHead, WrongHead or Unauthorised.

    Args:
        ask: Makes the challenge for the head from a request and an address.
    """

    def hook(request: "httpx2.Request") -> None:
        def look(event: str, info: dict[str, Any]) -> None:
            if event == OPENED:
                _verify_head(request, ask, info["return_value"])

        if needs_proof(str(request.url)):
            request.extensions["trace"] = look

    return {"request": [hook]}


def async_hooks(
    ask: "Ask" = by_bearer,
) -> dict[str, list["Callable[..., Awaitable[Any]]"]]:
    """Return the event hooks for an httpx2.AsyncClient. They verify the head on each
    new connection, before the request is sent, as `hooks` does."""

    async def hook(request: "httpx2.Request") -> None:
        async def look(event: str, info: dict[str, Any]) -> None:
            if event == OPENED:
                await _verify_head_async(request, ask, info["return_value"])

        if needs_proof(str(request.url)):
            request.extensions["trace"] = look

    return {"request": [hook]}


def _verify_head(request: "httpx2.Request", ask: "Ask", stream: Any) -> None:
    import httpcore2
    import httpx2

    try:
        challenge = ask(request, stream.get_extra_info("server_addr")[:2])
        stream.write(challenge.request, PROOF_SECONDS)
        while not challenge.feed(stream.read(PIECE_BYTES, PROOF_SECONDS)):
            pass
    except (OSError, httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        stream.close()
        raise httpx2.ConnectError(str(error)) from error
    except BaseException:
        stream.close()
        raise


async def _verify_head_async(
    request: "httpx2.Request", ask: "Ask", stream: Any
) -> None:
    import httpcore2
    import httpx2

    try:
        challenge = ask(request, stream.get_extra_info("server_addr")[:2])
        await stream.write(challenge.request, PROOF_SECONDS)
        while not challenge.feed(await stream.read(PIECE_BYTES, PROOF_SECONDS)):
            pass
    except (OSError, httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        await stream.aclose()
        raise httpx2.ConnectError(str(error)) from error
    except BaseException:
        await stream.aclose()
        raise
