"""Proof that a head without TLS is the intended one, before a token is sent to it.

On loopback a head uses plain HTTP, and any process of the machine may take its port
when the head ends. So each connection begins with a challenge. The caller names its
token by an id and sends a random nonce. The head answers with an HMAC of the nonce
under the token's SHA-256, which only the caller and the cluster's store have. The proof
covers the address at which the connection arrived, so that no other listener can pass
the challenge on to the head. The token itself follows on the same connection.
"""

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from corral.domain.errors import InsecureHead, Unauthorised, WrongHead

PROOF: Final = "/v1/proof"
# in place of a token's id: proof by the key that all heads share
CLUSTER: Final = "cluster"
INSECURE: Final = "CORRAL_INSECURE"  # "1": send tokens without TLS and without a proof
PROOF_SECONDS: Final = 5.0
MOST_BYTES: Final = 16_384  # of an answer
PIECE_BYTES: Final = 4096
_FORM: Final = "corral-proof-1"
_JOB: Final = re.compile(r"cj\.(j[0-9_]{1,40}\.\d{1,9})\.[0-9a-f]{64}", re.ASCII)
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d{1,6})\r\n")
_ANOTHER: Final = (
    "stop the program that uses this port, then run: corral up. If it is a head of an "
    f"older version, restart it, or set {INSECURE}=1 to trust the port once"
)

Address = tuple[str, int]


def needs_proof(url: str) -> bool:
    """Return whether the head at this address must prove itself: on loopback, without
    TLS.

    Raises: InsecureHead for another machine without TLS.
    """
    parsed_url = urlsplit(url)
    if parsed_url.scheme != "http" or os.environ.get(INSECURE) == "1":
        return False
    host = parsed_url.hostname or ""
    if not _is_loopback(host):
        raise InsecureHead(
            f"{url} is another machine without TLS: others on the network could read "
            "the token",
            hint="use the https:// address that `corral status` prints on that "
            "machine; to send the token unencrypted, add --insecure or set "
            f"{INSECURE}=1",
        )
    return True


def fresh_nonce() -> str:
    return os.urandom(16).hex()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token: the store keeps this and not the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def proof_text(nonce: str, address: Address) -> str:
    """Return the text that a proof signs. `address` is the head's end of the
    connection."""
    host = ip_address(address[0].partition("%")[0])
    if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return f"{_FORM}\n{nonce}\n{host}\n{address[1]}"


def proof_of(digest: str, nonce: str, address: Address) -> str:
    """Return 64 hexadecimal digits that prove knowledge of a token's digest."""
    return hmac.digest(
        digest.encode(), proof_text(nonce, address).encode(), "sha256"
    ).hex()


class Challenge:
    """One challenge to a head. The caller sends `request` and passes the bytes of the
    answer to `feed`.

    Args:
        url: Address of the head, for the Host header.
        query: Name of the secret that the head must prove, as the query of the request.
        nonce: 32 hexadecimal digits, new for each challenge.
        proofs: Answers that are valid proofs.
    """

    def __init__(self, url: str, query: str, nonce: str, proofs: Sequence[str]) -> None:
        parsed_url = urlsplit(url)
        self.url = f"{parsed_url.scheme}://{parsed_url.netloc}"
        self._query = f"{query}&nonce={nonce}"
        self._proofs = proofs
        self._read = b""

    @classmethod
    def by_token(cls, url: str, token: str, address: Address) -> "Challenge":
        """Return a challenge for a token. `address` is the head's end of the
        connection."""
        nonce, digest, job = fresh_nonce(), digest_of(token), _JOB.fullmatch(token)
        query = f"token=t{digest[:12]}" + (f"&attempt={job[1]}" if job else "")
        return cls(url, query, nonce, (proof_of(digest, nonce, address),))

    @classmethod
    def by_keys(
        cls, url: str, signatures: Callable[[str], Sequence[str]], address: Address
    ) -> "Challenge":
        """Return a challenge of one head to another. The proof uses the keys that all
        heads of a cluster share (`signatures`)."""
        nonce = fresh_nonce()
        return cls(
            url, f"token={CLUSTER}", nonce, signatures(proof_text(nonce, address))
        )

    @property
    def request(self) -> bytes:
        """Return the bytes to send first on the connection."""
        request_line = f"GET {PROOF}?{self._query} HTTP/1.1"
        return (
            f"{request_line}\r\nHost: {self.url.partition('://')[2]}\r\n\r\n".encode()
        )

    def feed(self, piece: bytes) -> bool:
        """Process a piece of the answer. Return True when the head has proven itself,
        False while the answer is incomplete.

        Raises: WrongHead; Unauthorised if the head does not have the token;
        ConnectionError if the connection ends early.
        """
        if not piece:
            raise ConnectionResetError(
                f"the connection to {self.url} closed before the head proved its "
                "identity"
            )
        self._read += piece
        head, blank, body = self._read.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n") if blank else None
        if length is None or len(body) < int(length[1]):
            if len(self._read) > MOST_BYTES or (blank and length is None):
                raise self._wrong_head_error("its answer is not a proof of identity")
            return False
        self._check(head.split(b" ", 2)[1:2], body)
        return True

    def _check(self, status: list[bytes], body: bytes) -> None:
        # a head that is not ready: worth another try
        if status in ([b"503"], [b"429"]):
            raise ConnectionResetError(
                f"the head at {self.url} is not ready to prove its identity"
            )
        try:
            answer = json.loads(body)
            proof = answer["proof"] if status == [b"200"] else ""
        except (ValueError, KeyError, TypeError):
            proof = ""
        if proof is None:
            raise Unauthorised(
                "this cluster does not know the token",
                hint="set CORRAL_TOKEN to a token of this cluster; an admin creates "
                "one with: corral token create NAME",
            )
        if not isinstance(proof, str) or not proof.isascii():
            proof = ""
        if not any(
            hmac.compare_digest(proof, expected_proof)
            for expected_proof in self._proofs
        ):
            raise self._wrong_head_error(
                "its proof of identity is wrong"
                if proof
                else "it sent no proof of identity"
            )

    def _wrong_head_error(self, why: str) -> WrongHead:
        return WrongHead(
            f"{self.url} is not the head of this cluster: {why}; no token was sent",
            hint=_ANOTHER,
        )
