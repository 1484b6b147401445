"""Routes file: services, replicas and callers as a whole state under a version."""

import json
import re
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.errors import SpecInvalid
from corral.wire.fallback_target import FallbackTarget
from corral.wire.gateway_routes import (
    FallbackEntry,
    ReplicaEntry,
    RoutesFile,
    decode_routes,
)

_KEY_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PRINTABLE: Final = re.compile(r"[!-~]+")


class RoutesInvalid(SpecInvalid):
    """The routes file contains a value that is not valid."""

    code = "routes_invalid"


def read_routes_file(path: Path, *, host: str) -> RoutesFile:
    """Read and check a routes file. Raises: RoutesInvalid.

    Args:
        host: Address on which the gateway listens; `open` needs a loopback address.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RoutesInvalid(
            f"{path} cannot be read: {error.strerror}", hint="give --routes a JSON file"
        ) from None
    try:
        routes = decode_routes(text)
    except msgspec.ValidationError as error:
        raise RoutesInvalid(f"{path}: {_with_field(str(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RoutesInvalid(f"{path}{_line(text)}: not valid JSON: {error}") from None
    faults = [*_faults(routes), *_open_faults(routes, host)]
    if faults:
        raise RoutesInvalid(f"{path}: {faults[0]}")
    return routes


def _with_field(message: str) -> str:
    """Put the field first: msgspec writes `... - at `$.services[0].port``."""
    text, _, field = message.partition(" - at `$.")
    return f"{field.rstrip('`')}: {text}" if field else text


def _line(text: bytes) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f", line {error.lineno}"
    except (UnicodeDecodeError, RecursionError):
        return ""
    return ""


def _faults(routes: RoutesFile) -> Iterable[str]:
    callers = [caller.name for caller in routes.callers]
    yield from _repeated("callers: the name", callers)
    caller_names = frozenset(callers)
    hashes = [caller.key_sha256 for caller in routes.callers]
    yield from _repeated("callers: the key_sha256", hashes)
    for index, caller in enumerate(routes.callers):
        if not _KEY_HASH.fullmatch(caller.key_sha256):
            yield f"callers[{index}].key_sha256: expected 64 hex digits in lower case"
    yield from _repeated(
        "services: the name", [service.name for service in routes.services]
    )
    models = [
        name
        for service in routes.services
        for name in (*service.models, *(adapter.name for adapter in service.adapters))
    ]
    yield from _repeated("services: the model", models)
    for index, service in enumerate(routes.services):
        field = f"services[{index}]"
        names = [replica.name for replica in service.replicas]
        yield from _repeated(f"{field}.replicas: the name", names)
        for number, replica in enumerate(service.replicas):
            yield from _replica_faults(f"{field}.replicas[{number}]", replica)
        if service.fallback is not None:
            yield from _fallback_faults(f"{field}.fallback", service.fallback)
        for name in service.allow or ():
            if name not in caller_names:
                yield f"{field}.allow: {name!r} is not the name of a caller"


def _replica_faults(field: str, replica: ReplicaEntry) -> Iterable[str]:
    if not _PRINTABLE.fullmatch(replica.host):
        yield f"{field}.host: expected a host name or an address"
    if replica.key is not None and not _PRINTABLE.fullmatch(replica.key):
        yield f"{field}.key: expected printable ASCII characters without spaces"


def _fallback_faults(field: str, fallback: FallbackEntry) -> Iterable[str]:
    try:
        FallbackTarget.of(fallback.url)
    except ValueError as error:
        yield f"{field}.url: {error}"
    if fallback.key is not None and not _PRINTABLE.fullmatch(fallback.key):
        yield f"{field}.key: expected printable ASCII characters without spaces"


def _repeated(what: str, names: list[str]) -> Iterable[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"{what} {name[:80]!r} is there twice"
        seen.add(name)


def _open_faults(routes: RoutesFile, host: str) -> Iterable[str]:
    if routes.open and not is_loopback(host):
        yield (
            "open: true is allowed only where the gateway listens on a loopback "
            f"address, not on {host}"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
