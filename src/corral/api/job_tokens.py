"""The token of a job itself: while its attempt lives it lets in the job's owner, as a user at most.

It is no row of the store: the head signs the attempt's name with its own key. A spec asks for it by
naming the secret CORRAL_TOKEN (docs/decisions/0030).
"""

import hmac
import re
from typing import Final

from corral.api.settings import Seals
from corral.control import Control
from corral.domain.facts import AttemptKey
from corral.domain.ids import AttemptNumber, JobId, TokenId
from corral.domain.moves import ON_NODES
from corral.domain.people import Role, Token
from corral.domain.world import World
from corral.ports.people import Identity
from corral.ports.store import Store

NAME: Final = "CORRAL_TOKEN"
_FORM: Final = re.compile(r"cj\.(j[0-9_]{1,40})\.(\d{1,9})\.([0-9a-f]{64})", re.ASCII)


class Tokens:
    """What the gate asks about the tokens of jobs."""

    def __init__(self, control: Control, seals: Seals) -> None:
        self._control = control
        self._seals = seals

    def attempt_of(self, secret: str) -> AttemptKey | None:
        """Whose token this is; None for one that this head has not made."""
        match = _FORM.fullmatch(secret)
        if match is None:
            return None
        key = (JobId(match.group(1)), AttemptNumber(int(match.group(2))))
        made = self._seals.sign(_signed(key))
        return key if hmac.compare_digest(match.group(3), made) else None

    async def identity(self, attempt: AttemptKey, sha256: str) -> Identity | None:
        """Whom it lets in; None once its attempt is over. Raises: StoreTrouble."""
        return await identity_of(self._control.store, self._control.world, attempt, sha256)


def job_token(seals: Seals, key: AttemptKey) -> str:
    """The same for all nodes of the attempt."""
    job, attempt = key
    return f"cj.{job}.{attempt}.{seals.sign(_signed(key))}"


async def identity_of(store: Store, world: World, key: AttemptKey, sha256: str) -> Identity | None:
    """Whom the token lets in; None once its attempt is over. Raises: StoreTrouble."""
    job, attempt = world.jobs.get(key[0]), world.attempts.get(key[0])
    if job is None or attempt is None or attempt.number != key[1] or job.state not in ON_NODES:
        return None
    token = Token(
        id=TokenId(f"{key[0]}.{key[1]}"),
        sha256=sha256,
        user=job.owner,
        role=Role.USER,
        created_at=attempt.placed_at,
    )
    return token, next((user for user in await store.users() if user.name == job.owner), None)


def _signed(key: AttemptKey) -> str:
    return f"job token {key[0]}.{key[1]}"
