"""The token of a job itself. While the job's attempt lives, the token authenticates as
the job's owner, with at most the rights of a user, and only on the job itself and its
array unless the spec says `token: submit`.

The token is not a row of the store: the head signs the attempt's name with its own key.
A spec requests the token by naming the secret CORRAL_TOKEN, or by `token`
(docs/decisions/0072).
"""

import hmac
import re
from collections.abc import Sequence
from math import inf
from typing import Final

from corral.api.auth import OwnJob
from corral.api.settings import Seals
from corral.control import Control
from corral.domain.errors import Forbidden
from corral.domain.ids import AttemptNumber, JobId, TokenId
from corral.domain.job import JobSpec, TokenScope
from corral.domain.observed_state import AttemptKey
from corral.domain.users import Role, Token
from corral.domain.world import World
from corral.ports.store import Store
from corral.ports.user_store import Identity
from corral.wire.head_proof import digest_of

NAME: Final = "CORRAL_TOKEN"
_FORM: Final = re.compile(r"cj\.(j[0-9_]{1,40})\.(\d{1,9})\.([0-9a-f]{64})", re.ASCII)


class JobTokenIndex:
    """Index of the tokens of jobs, for authentication."""

    def __init__(self, control: Control, seals: Seals) -> None:
        self._control = control
        self._seals = seals

    def attempt_of(self, secret: str) -> AttemptKey | None:
        """Return the attempt that this token belongs to; None for a token that this
        head has not created."""
        match = _FORM.fullmatch(secret)
        if match is None:
            return None
        key = (JobId(match.group(1)), AttemptNumber(int(match.group(2))))
        attempt = self._control.world.attempts.get(key[0])
        placed_at = inf if attempt is None else attempt.placed_at
        signatures = self._seals.signatures(_signature_text(key), placed_at)
        return (
            key
            if any(
                hmac.compare_digest(match.group(3), token_text)
                for token_text in signatures
            )
            else None
        )

    async def identity(self, attempt: AttemptKey, sha256: str) -> Identity | None:
        """Return the identity of the token; None once its attempt is over. Raises:
        StoreTrouble."""
        return await identity_of(
            self._control.store, self._control.world, attempt, sha256
        )

    def job_of(self, attempt: AttemptKey) -> OwnJob | None:
        """Return the job of the attempt with its token's scope; None if the job is not
        in the head's memory."""
        job = self._control.world.jobs.get(attempt[0])
        if job is None:
            return None
        return OwnJob(attempt=attempt, scope=job.spec.token, array=job.array)


def job_token(seals: Seals, key: AttemptKey) -> str:
    """Return the secret of the attempt's own token. It is the same on all nodes of the
    attempt."""
    return job_tokens(seals, key)[0]


def job_tokens(seals: Seals, key: AttemptKey) -> list[str]:
    """Return the attempt's token under each key of the cluster, the newest key
    first."""
    return [
        _secret_of(key, signature)
        for signature in seals.signatures(_signature_text(key))
    ]


def tokens_of_running_jobs(seals: Seals, world: World) -> list[Token]:
    """Return the tokens of all attempts that have one and are not over. An attempt has
    a token under each key of the cluster that may have signed it."""
    tokens = []
    for id, attempt in world.attempts.items():
        job = world.jobs.get(id)
        if job is None or NAME not in job.spec.secrets or not job.state.is_on_nodes:
            continue
        key = (id, attempt.number)
        signatures = seals.signatures(_signature_text(key), attempt.placed_at)
        for number, signature in enumerate(signatures):
            suffix = f".{number}" if number else ""  # each name is there once
            token = Token(
                id=TokenId(f"{id}.{attempt.number}{suffix}"),
                sha256=digest_of(_secret_of(key, signature)),
                user=job.owner,
                role=Role.USER,
                created_at=attempt.placed_at,
            )
            tokens.append(token)
    return tokens


def check_submitted(specs: Sequence[JobSpec], own: OwnJob | None) -> None:
    """Refuse specs that request `token: submit` when they are submitted with a job's
    own token (`own`). Otherwise a token could request others of its own kind without
    end. Raises: Forbidden."""
    if own is None:
        return
    for spec in specs:
        if spec.token == TokenScope.SUBMIT:
            raise Forbidden(
                f"the spec of {spec.name} contains token: submit, which is not allowed for a job "
                "that another job submits with its own token",
                hint=f"remove token: submit; or submit {spec.name} with your own token and "
                f"after: {own.attempt[0]}",
            )


async def identity_of(
    store: Store, world: World, key: AttemptKey, sha256: str
) -> Identity | None:
    """Return the identity (token and user) for the attempt's token; None once the
    attempt is over. Raises: StoreTrouble."""
    job, attempt = world.jobs.get(key[0]), world.attempts.get(key[0])
    if (
        job is None
        or attempt is None
        or attempt.number != key[1]
        or not job.state.is_on_nodes
    ):
        return None
    token = Token(
        id=TokenId(f"{key[0]}.{key[1]}"),
        sha256=sha256,
        user=job.owner,
        role=Role.USER,
        created_at=attempt.placed_at,
    )
    return token, next(
        (user for user in await store.users() if user.name == job.owner), None
    )


def _signature_text(key: AttemptKey) -> str:
    return f"job token {key[0]}.{key[1]}"


def _secret_of(key: AttemptKey, signature: str) -> str:
    return f"cj.{key[0]}.{key[1]}.{signature}"
