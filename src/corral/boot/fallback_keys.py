"""API keys of the fallbacks of services, from the secrets that their specs name."""

from collections.abc import Iterable

from corral.api.secret_rights import known_secrets
from corral.api.settings import Seals
from corral.domain.ids import ServiceName, UserName
from corral.domain.service import Service
from corral.ports.log import HeadLogger
from corral.ports.store import Store

NeededKeys = frozenset[tuple[ServiceName, UserName, str]]
log = HeadLogger("corral.gateway")


def needed_keys(services: Iterable[Service]) -> NeededKeys:
    """Return each service with a fallback, its owner and the name of the secret."""
    return frozenset(
        (service.name, service.owner, service.spec.fallback.secret)
        for service in services
        if service.spec.fallback is not None
    )


async def read_fallback_keys(
    store: Store, seals: Seals, needed: NeededKeys
) -> dict[ServiceName, str]:
    """Return the keys by service. A service whose owner may not use the secret any more
    has none. Raises: Trouble."""
    if not needed:
        return {}
    secrets = await known_secrets(store)
    keys: dict[ServiceName, str] = {}
    for service, owner, name in sorted(needed):
        sealed = await store.secret(name) if secrets.serves(name, owner) else None
        if sealed is None:
            log.warning("fallback_without_key", service=service, secret=name)
            continue
        key = seals.open(name, sealed).decode(errors="replace").strip()
        if key.isascii() and key.isprintable() and key and " " not in key:
            keys[service] = key
        else:
            log.warning("fallback_key_not_valid", service=service, secret=name)
    return keys
