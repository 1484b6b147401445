"""Route by which a head proves its identity to callers on loopback, before they send a
token."""

import re
from collections import OrderedDict
from typing import Final
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from corral.api.errors import RequestInvalid
from corral.api.job_tokens import job_tokens
from corral.api.settings import Seals
from corral.domain.ids import AttemptNumber, JobId, TokenId
from corral.domain.observed_state import AttemptKey
from corral.domain.users import token_id
from corral.ports.store import Store
from corral.wire.head_proof import CLUSTER, Address, digest_of, proof_of, proof_text

MOST_CACHED: Final = 10_000
_NONCE: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TOKEN: Final = re.compile(r"t[0-9a-f]{12}", re.ASCII)
_ATTEMPT: Final = re.compile(r"(j[0-9_]{1,40})\.(\d{1,9})", re.ASCII)


class Proofs:
    """Head's answers to challenges, which prove its identity (wire/head_proof.py). The
    digest of a token never changes, so it is cached. Whether the token is still valid
    is checked only when a caller sends the token itself."""

    def __init__(self, store: Store, seals: Seals) -> None:
        self._store = store
        self._seals = seals
        self._digests: OrderedDict[TokenId, str] = OrderedDict()

    async def answer(self, scope: Scope) -> Response:
        """Return `{"proof": ...}`; the proof is null for a token that this cluster does
        not have.

        Raises: RequestInvalid, StoreTrouble.
        """
        query = parse_qs(scope["query_string"].decode("latin-1"))
        nonce, token, attempt = (
            query.get(name, [""])[0] for name in ("nonce", "token", "attempt")
        )
        server = scope.get("server")
        if not _NONCE.fullmatch(nonce):
            raise RequestInvalid("the parameter nonce is not 32 hexadecimal digits")
        if not server or server[1] is None:
            raise RequestInvalid(
                "the request did not arrive at a TCP address, which the proof must contain",
                hint="call the head at the address that this command shows: corral status",
            )
        proof = await self._answer_challenge(
            nonce, (server[0], server[1]), token, attempt
        )
        return JSONResponse({"proof": proof}, headers={"Cache-Control": "no-store"})

    async def _answer_challenge(
        self, nonce: str, address: Address, token: str, attempt: str
    ) -> str | None:
        if token == CLUSTER:
            return self._seals.sign(proof_text(nonce, address))
        if not _TOKEN.fullmatch(token):
            raise RequestInvalid(
                "the parameter token is not a token id: t and 12 hexadecimal digits"
            )
        digest = await self._digest(TokenId(token), _ATTEMPT.fullmatch(attempt))
        return None if digest is None else proof_of(digest, nonce, address)

    async def _digest(self, id: TokenId, attempt: re.Match[str] | None) -> str | None:
        """Return the SHA-256 of the token with this id; None for an unknown one."""
        if attempt is not None:
            key: AttemptKey = (JobId(attempt[1]), AttemptNumber(int(attempt[2])))
            digests = map(digest_of, job_tokens(self._seals, key))
            return next((digest for digest in digests if token_id(digest) == id), None)
        if id not in self._digests:
            token = await self._store.token(id)
            if token is None:
                return None
            self._digests[id] = token.sha256
            if len(self._digests) > MOST_CACHED:
                self._digests.popitem(last=False)
        return self._digests[id]
