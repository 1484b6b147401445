"""A small OpenID Connect provider over real HTTP, which may be told to answer
wrongly."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "corral-test"
SECRET = "a secret/with:signs"


@dataclass
class Provider:
    """What it says of who logs in; `wrong` changes the ID token's claims, `header` its
    header."""

    url: str = ""
    who: dict[str, Any] = field(
        default_factory=lambda: {"preferred_username": "Ann", "groups": ["ml-team"]}
    )
    wrong: dict[str, Any] = field(default_factory=dict)
    signed: str = "RS256"
    key: Any = field(default_factory=lambda: RSAKey.generate_key(2048, auto_kid=True))
    published: Any = None  # None: the key that signs
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def rotate(self) -> None:
        self.key = RSAKey.generate_key(2048, auto_kid=True)

    def get(self, path: str, query: dict[str, str]) -> tuple[int, Any, str]:
        """(status, answer, where to go)."""
        if path == "/.well-known/openid-configuration":
            about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            about |= {"authorization_endpoint": f"{self.url}/authorize"}
            return 200, about | {"token_endpoint": f"{self.url}/token"}, ""
        if path == "/keys":
            key = self.published or self.key
            return 200, {"keys": [key.as_dict(private=False)]}, ""
        if path != "/authorize":
            return 404, {}, ""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        return 302, {}, f"{query['redirect_uri']}?{back}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        """A code counts once, with its verifier, for who has the client's secret."""
        pair = f"{CLIENT}:a%20secret%2Fwith%3Asigns".encode()
        if authorization != f"Basic {base64.b64encode(pair).decode()}":
            return 401, {"error": "invalid_client"}
        began = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if (
            began is None
            or began["code_challenge"] != _base64(digest)
            or began["redirect_uri"] != form["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        return 200, {"id_token": self._id_token(began["nonce"]), "token_type": "Bearer"}

    def _id_token(self, nonce: str) -> str:
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": f"u-{self.who.get('preferred_username', 1)}",
            "iat": now,
            "exp": now + 300,
        }
        claims |= {"nonce": nonce, **self.who, **self.wrong}
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.signed in ("none", "HS256"):
            text = ".".join(
                _base64(json.dumps(part).encode())
                for part in ({"alg": self.signed, "kid": self.key.kid}, claims)
            )
            if self.signed == "none":
                return f"{text}."
            # what everybody may read, taken for a secret
            public = self.key.as_pem(private=False)
            return f"{text}.{_base64(hmac.digest(public, text.encode(), 'sha256'))}"
        header = {"alg": self.signed, "kid": (self.published or self.key).kid}
        return jwt.encode(header, claims, self.key)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def provider() -> Iterator[Provider]:
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            made.asked.append(asked.path)
            query = {name: values[0] for name, values in parse_qs(asked.query).items()}
            self._answer(*made.get(asked.path, query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, answer = made.token(form, self.headers.get("authorization", ""))
            self._answer(status, answer, "")

        def _answer(self, status: int, answer: Any, to: str) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if to:
                self.send_header("Location", to)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
