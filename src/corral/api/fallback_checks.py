"""Checks of the fallback in the spec of a service before it is applied."""

import asyncio
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.domain.service_access import FallbackRule
from corral.wire.fallback_target import FallbackTarget, first_forbidden

RESOLVE_SECONDS: Final = 5.0
_ALLOW: Final = (
    "name a provider on the Internet; to allow such fallbacks, an admin may restart the "
    "head: corral up --fallback-private-ok"
)


async def check_fallback(rule: FallbackRule, *, private_ok: bool) -> None:
    """Refuse a fallback without TLS or with an address inside a private network, which
    requests of users must not reach.

    Raises: SpecInvalid, also if the host has no address.
    """
    target = FallbackTarget.of(rule.url)
    if private_ok:
        return
    if not target.is_tls:
        raise SpecInvalid(
            f"fallback.url {rule.url} does not begin with https://", hint=_ALLOW
        )
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            rows = await asyncio.get_running_loop().getaddrinfo(
                target.host, target.port, type=1
            )
    except OSError as error:  # a TimeoutError is one
        raise SpecInvalid(
            f"the host of fallback.url has no address: {target.host}: {error}",
            hint=f"check it on the head's machine: getent hosts {target.host}",
        ) from None
    forbidden = first_forbidden(str(row[4][0]) for row in rows)
    if forbidden is not None:
        raise SpecInvalid(
            f"fallback.url leads to {forbidden}, which is not a public address",
            hint=_ALLOW,
        )
