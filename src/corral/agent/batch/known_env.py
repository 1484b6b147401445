"""Environment variables that a helper already has: only their names are sent, and not
their values.

Every node of a job has the job's secrets in its environment, so the values need not
travel between the nodes.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

_DIGEST_BYTES: Final = 16


def digests_of(env: Mapping[str, str], key: bytes) -> dict[str, str]:
    """Return a keyed digest of each value. Without the key, a digest reveals nothing
    about the value."""
    return {name: _variable_digest(name, value, key) for name, value in env.items()}


def without_known(
    env: Mapping[str, str], known: Mapping[str, str], key: bytes
) -> tuple[dict[str, str], list[str]]:
    """Return the variables that must be sent, and the names of those that the other end
    already has with the same value.

    Args:
        known: digests of the other end's own environment, which it has sent.
    """
    known_names = [
        name
        for name, value in env.items()
        if known.get(name) == _variable_digest(name, value, key)
    ]
    omitted = set(known_names)
    return {
        name: value for name, value in env.items() if name not in omitted
    }, known_names


def with_known(
    env: Mapping[str, str], same: object, own: Mapping[str, str]
) -> dict[str, str]:
    """Merge `env` with the `own` values of the names `same`."""
    names = same if isinstance(same, list) else []
    return {**{name: own[name] for name in names if name in own}, **env}


def _variable_digest(name: str, value: str, key: bytes) -> str:
    digest_input = (
        b"corral variable\x00" + name.encode(errors="surrogateescape") + b"\x00"
    )
    digest_input += value.encode(errors="surrogateescape")
    return hmac.new(key, digest_input, hashlib.sha256).hexdigest()[: 2 * _DIGEST_BYTES]
