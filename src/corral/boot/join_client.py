"""Requests of a machine that joins or has joined a cluster. They use their own trusted
certificates, because no client exists yet."""

import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from corral.boot.settings import is_loopback
from corral.client.head_target import error_of
from corral.domain.errors import SpecInvalid, Unreachable, WrongHead
from corral.wire.proven_http import connection_to
from corral.wire.tls import fingerprint_of, trusting

TIMEOUT_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCall:
    """One request to a head. The head is verified by the fingerprint of its
    certificate; without a fingerprint, by the certificates in the file `trusted` or
    those that this machine trusts."""

    method: str
    path: str
    token: str
    body: Any = None


def ask(
    url: str, call: JoinCall, *, fingerprint: str = "", trusted: Path | None = None
) -> Any:
    """Send a request and return the body of the response.

    The token is sent only to the intended head.

    Raises: SpecInvalid, WrongHead, Unreachable, and errors returned by the head.
    """
    connection = _connection(url, call.token, fingerprint=fingerprint, trusted=trusted)
    with closing(connection):
        try:
            connection.connect()
            _check_fingerprint(connection, url, fingerprint)
            body = None if call.body is None else json.dumps(call.body)
            headers = {
                "Authorization": f"Bearer {call.token}",
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
            }
            connection.request(call.method, call.path, body=body, headers=headers)
            answer = connection.getresponse()
            reply = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise WrongHead(
                "this machine does not trust the TLS certificate of the head at "
                f"{url}: {error.verify_message}",
                hint="add the --fingerprint that this command shows on the head: "
                "corral node token",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"no head answers at {url}: {error}",
                hint="check that the head runs (corral status on its machine) and that "
                "this machine can reach it",
            ) from None
    if answer.status >= 400:
        raise error_of(answer.status, reply)
    return json.loads(reply) if reply else None


def _connection(
    url: str, token: str, *, fingerprint: str, trusted: Path | None
) -> http.client.HTTPConnection:
    """Return a connection to the head that is not opened yet.

    Raises: SpecInvalid.
    """
    parsed_url = urlsplit(url)
    host = parsed_url.hostname or ""
    if parsed_url.scheme == "http" and is_loopback(host) and not fingerprint:
        return connection_to(url, token, timeout=TIMEOUT_SECONDS, trusted=None)
    if parsed_url.scheme != "https" or not host:
        raise SpecInvalid(
            f"{url!r} is not a valid address of a head: it must be https://HOST:PORT",
            hint="copy the address that this command shows on the head: corral node "
            "token",
        )
    context = trusting(trusted)
    if fingerprint:
        context.check_hostname, context.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # see _check_fingerprint
    return http.client.HTTPSConnection(
        host, parsed_url.port, timeout=TIMEOUT_SECONDS, context=context
    )


def _check_fingerprint(
    connection: http.client.HTTPConnection, url: str, fingerprint: str
) -> None:
    """Check the head's certificate before anything is sent.

    Raises: WrongHead.
    """
    if not fingerprint:
        return
    assert isinstance(connection.sock, ssl.SSLSocket)
    peer_fingerprint = fingerprint_of(
        connection.sock.getpeercert(binary_form=True) or b""
    )
    if peer_fingerprint != fingerprint.lower():
        raise WrongHead(
            f"the certificate of the head at {url} has another fingerprint than "
            f"expected: {peer_fingerprint}",
            hint="no token was sent; create a new join token on the head: corral node "
            "token",
        )
