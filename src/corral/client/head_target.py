"""Choice of the head that the client connects to, and conversion of the head's error
answers to exceptions."""

import json
import os
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from corral.client.log_ins import LogIn, log_in_at
from corral.domain import errors
from corral.domain.errors import (
    Bug,
    CorralError,
    Refusal,
    SpecInvalid,
    Trouble,
    Unauthorised,
    Unreachable,
)
from corral.wire.head_proof import Challenge, needs_proof
from corral.wire.tls import trusting

DEFAULT_DIR: Final = "~/.corral"
# what a head takes for one
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}", re.ASCII)
_SAID: Final = "the value of CORRAL_TOKEN"
_ANOTHER: Final = "ask an admin of the cluster to run: corral token create NAME"
_UNTRUSTED: Final = "certificate_verify_failed"
_NOBODY_THERE: Final = ("connection refused", "connect call failed", "attempts failed")
_BY_CODE: Final = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CorralError)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTarget:
    """A head to connect to: its address and the token for it. `begin` is the hint that
    the user gets if no head answers at this address."""

    url: str
    token: str
    begin: str = "run: corral up"
    needs_proof: bool = False

    @property
    def is_tls(self) -> bool:
        return self.url.startswith("https:")

    def challenge(self, address: tuple[str, int]) -> Challenge:
        """Return the challenge that the head must answer before the token is sent to
        it."""
        return Challenge.by_token(self.url, self.token, address)


@dataclass(slots=True, kw_only=True)
class Where:
    """Choice of the head and its token. The caller may give `url`, `token` and `dir`.
    Otherwise CORRAL_URL and CORRAL_TOKEN are used, then the cluster's directory.

    Several heads are given as addresses separated by commas or blanks. Any of them may
    answer, and the client stays with a head that has answered.
    """

    url: str | None = None
    token: str | None = None
    dir: str | Path | None = None
    _passed_over: int = field(default=0, init=False)
    # Set in the token's last days.
    token_ends_at: float | None = field(default=None, init=False)
    _own: bool = field(default=False, init=False)  # the token is the directory's
    log_in: LogIn | None = field(default=None, init=False)  # whose token is used

    def target(self) -> HeadTarget:
        """Return the address and the token for the next connection. They are determined
        again for each connection, because a head may move.

        Raises: Unreachable if no head was ever started in the directory; SpecInvalid
        for an invalid address; Unauthorised if there is no token for the head, or the
        given token is malformed; InsecureHead if the token would be sent unencrypted to
        another machine.
        """
        given_url, urls = self._given(), self.addresses()
        location_text = (
            "at this address" if len(urls) == 1 else f"at one of {', '.join(urls)}"
        )
        next_step = (
            f"check that a head runs {location_text} {_from_where(given_url)}"
            if given_url
            else self._start_command()
        )
        chosen = urls[self._passed_over % len(urls)]
        return HeadTarget(
            url=chosen,
            token=self._token(urls if given_url else None),
            begin=next_step,
            needs_proof=needs_proof(chosen),
        )

    def addresses(self) -> list[str]:
        """Return the addresses to choose from. Raises: Unreachable, SpecInvalid."""
        urls = split_addresses(self._given() or self._head_url())
        for url in urls:
            if (
                urlsplit(url).scheme not in ("http", "https")
                or not urlsplit(url).hostname
            ):
                raise SpecInvalid(
                    f"{url!r} is not a valid address of a head",
                    hint="write for example http://127.0.0.1:8470",
                )
        return urls

    @property
    def heads(self) -> int:
        """Return the number of heads to choose from."""
        return len(split_addresses(self._given() or "-"))

    def note(self, headers: Mapping[str, str]) -> None:
        """Store the expiry time of the token, which the head reports in its answers.
        The token of the cluster's directory is ignored, because its head renews it."""
        if self._own:
            return
        with suppress(KeyError, ValueError):
            self.token_ends_at = float(headers["corral-token-ends"])

    def refusal(self, status: int, body: bytes) -> CorralError:
        """Return the head's error as an exception. If a log-in is no longer accepted,
        the hint names the command for a new log-in."""
        error = error_of(status, body)
        if self.log_in is not None and isinstance(error, Unauthorised):
            error.hint = f"log in again: corral login --oidc {self.log_in.url}"
        return error

    def pass_over(self) -> None:
        """Select the next of the given heads, if there is one, because the current head
        did not answer. Use it for further connections."""
        self._passed_over += 1

    def _given(self) -> str | None:
        return self.url or (None if self.dir else os.environ.get("CORRAL_URL"))

    def trust(self, target: HeadTarget) -> ssl.SSLContext:
        """Return the TLS context that verifies the head. It trusts the machine's
        certificates (or SSL_CERT_FILE), CORRAL_CA, and the certificate in the cluster's
        directory. For an address without TLS it is empty, because loading the machine's
        certificates takes as long as ten answers of a head.

        Raises: SpecInvalid if CORRAL_CA names no certificate.
        """
        return self.trust_of(target.url)

    def trust_of(self, url: str) -> ssl.SSLContext:
        """Return the TLS context for an address, as `trust` does.

        Raises: SpecInvalid if the file holds no certificate.
        """
        if not url.startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        certificate_path = os.environ.get("CORRAL_CA")
        file = Path(certificate_path) if certificate_path else self.root / "ca.pem"
        try:
            return trusting(file if certificate_path or file.exists() else None)
        except OSError as wrong:
            raise SpecInvalid(
                f"no certificate can be read from {file}: {wrong}",
                hint="set CORRAL_CA to a copy of the file ca.pem from the head's directory",
            ) from None

    def socket(self, path: str) -> tuple[HeadTarget, str, dict[str, Any]]:
        """Return (target, address, options of `connect` of websockets) for a WebSocket
        to the head.

        Raises: as `target` and `trust`.
        """
        target = self.target()
        options = {
            "additional_headers": {"Authorization": f"Bearer {target.token}"},
            "proxy": None,
            "ssl": self.trust(target) if target.is_tls else None,
        }
        return target, "ws" + target.url.removeprefix("http") + path, options

    @property
    def root(self) -> Path:
        """The path of the cluster's directory."""
        return Path(
            self.dir or os.environ.get("CORRAL_DIR") or DEFAULT_DIR
        ).expanduser()

    def _head_url(self) -> str:
        path = self.root / "head.json"
        try:
            return str(json.loads(path.read_text())["url"])
        except (OSError, ValueError, KeyError, TypeError):
            raise Unreachable(
                f"there is no head in {self.root}", hint=self._start_command()
            ) from None

    def _start_command(self) -> str:
        """Return the command that starts a head in this directory."""
        usual = Path(os.environ.get("CORRAL_DIR") or DEFAULT_DIR).expanduser()
        return (
            "run: corral up"
            if self.root == usual
            else f"run: corral up --dir {self.root}"
        )

    def _token(self, urls: list[str] | None) -> str:
        """Return the given token, else that of a log-in at one of the heads `urls`,
        else the token of the cluster's directory. The last is sent only to the head of
        the directory. `urls` None means this head."""
        token_text = None if self.dir else os.environ.get("CORRAL_TOKEN")
        self._own, self.log_in = False, None
        if self.token or token_text:
            return _validate_token(
                self.token or token_text or "",
                "the given token" if self.token else _SAID,
            )
        log_ins = (log_in_at(self.root, url) for url in urls or ())
        self.log_in = next((log_in for log_in in log_ins if log_in is not None), None)
        if self.log_in is not None:
            return _validate_token(
                self.log_in.token, f"the saved token for {self.log_in.url}"
            )
        self._own = True
        for url in urls or ():
            if not self._is_own(url):
                hint = (
                    f"run: corral login --oidc {url}; or set CORRAL_TOKEN; {_ANOTHER}"
                )
                raise Unauthorised(f"there is no token for {url}", hint=hint)
        return _validate_token(
            self._own_token(), f"the content of {self.root / 'token'}"
        )

    def _is_own(self, url: str) -> bool:
        try:
            return url == self._head_url().rstrip("/")
        except Unreachable:
            return False

    def _own_token(self) -> str:
        path = self.root / "token"
        try:
            return path.read_text(errors="replace").strip()
        except OSError as error:
            raise Unreachable(
                f"the token file {path} cannot be read: {(error.strerror or '').lower()}",
                hint="run: corral up; or set CORRAL_TOKEN to a token of the cluster",
            ) from None


def split_addresses(given: str) -> list[str]:
    """Return the addresses of heads in a text. They are separated by commas or blanks."""
    return [url.rstrip("/") for url in given.replace(",", " ").split()] or [given]


def _validate_token(token: str, where: str) -> str:
    """Return the token if its form is valid. `where` describes where the token comes
    from.

    Raises: Unauthorised; the message does not contain the token.
    """
    if not _TOKEN.fullmatch(token):
        raise Unauthorised(f"{where} is not a valid token", hint=_ANOTHER)
    return token


def _from_where(url: str) -> str:
    url_text = os.environ.get("CORRAL_URL")
    return "(from CORRAL_URL)" if url == url_text else "(given explicitly)"


def no_answer(target: HeadTarget, error: Exception) -> CorralError:
    """Return the error for a head that is absent, that closed the connection, or that
    is another process."""
    if isinstance(error, CorralError):
        return error
    return unreachable(target.url, error, hint=target.begin)


def unreachable(url: str, error: Exception, *, hint: str) -> Unreachable:
    """Return the error of an address at which no head answers."""
    error_text = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
    if _UNTRUSTED in error_text.lower():
        return Unreachable(
            f"the head at {url} shows a certificate that this machine does not trust",
            hint="set CORRAL_CA to a copy of its ca.pem (on the head: tls/ca.pem in the cluster's "
            f"directory); or run: corral login {url}",
        )
    plain = not error_text or any(
        error_pattern in error_text.lower() for error_pattern in _NOBODY_THERE
    )
    reason_text = "" if plain else f": {error_text}"
    return Unreachable(f"no head answers at {url}{reason_text}", hint=hint)


def error_of(status: int, body: bytes) -> CorralError:
    """Return the exception for the head's error answer, of the same class as in the
    head."""
    code, message, hint = _parse_error(status, body)
    general = (
        Bug if status == 500 else Trouble if status > 500 and status != 501 else Refusal
    )
    kind = _BY_CODE.get(code, general)
    error = kind.__new__(kind)
    CorralError.__init__(error, message, hint=hint)
    if kind.code != code:
        error.code = code  # type: ignore[misc]  # of a head that is newer than this client
    return error


def _parse_error(status: int, body: bytes) -> tuple[str, str, str]:
    try:
        error: Any = json.loads(body)["error"]
        return str(error["code"]), str(error["message"]), str(error.get("hint", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        body_text = body[:200].decode(errors="replace")
        return (
            f"http_{status}",
            f"the answer is not that of a Corral head: HTTP {status} {body_text}",
            "",
        )
