"""Client of an OpenID Connect provider: discovery, code exchange and keys."""

import pwd
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import httpx2

from corral.boot.settings import ClusterSettings, is_loopback
from corral.domain.errors import Conflict, SpecInvalid, Trouble
from corral.domain.sign_on import (
    RESERVED,
    SETTINGS,
    SignOnRefused,
    SignOnRule,
    check_claims,
)
from corral.domain.users import LADDER, Role
from corral.ports.clock import Clock

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

# Signed with a private key alone: neither `none` nor a secret that the client shares.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
ANSWER_SECONDS: Final = 10.0
KNOWN_SECONDS: Final = 3600.0  # for which what the provider says of itself is kept
KEYS_SECONDS: Final = 10.0  # between two looks for a key that is not known
ID_TOKEN_BYTES: Final = 64 * 1024
SCOPES: Final = "openid profile email"
LOGIN_DEFS: Final = Path("/etc/login.defs")
PEOPLE_FROM_UID: Final = 1000  # where that file does not say UID_MIN
WELL_KNOWN: Final = "/.well-known/openid-configuration"


class ProviderTrouble(Trouble):
    """The provider does not answer, or its answer is not valid for an OpenID Connect
    provider."""

    code = "provider_trouble"


class Provider:
    """One OpenID Connect provider, configured from the discovery document under its
    issuer's address."""

    def __init__(self, rule: SignOnRule, secret: str | None, clock: Clock) -> None:
        self.rule = rule
        self._secret = secret
        self._clock = clock
        self._about: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    @property
    def name(self) -> str:
        """Return the name of the provider on the log-in page."""
        return urlsplit(self.rule.issuer).hostname or self.rule.issuer

    async def address(
        self, *, redirect: str, state: str, nonce: str, challenge: str
    ) -> str:
        """Return the address of the provider to which the browser is sent. Raises:
        ProviderTrouble."""
        endpoint = (await self._discovered())["authorization_endpoint"]
        query = {
            "response_type": "code",
            "client_id": self.rule.client_id,
            "redirect_uri": redirect,
            "scope": SCOPES,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if self.rule.hosted_domain is not None:
            # a request to Google; the claim is checked
            query["hd"] = self.rule.hosted_domain
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def claims(
        self, *, code: str, verifier: str, nonce: str, redirect: str
    ) -> Mapping[str, Any]:
        """Return the verified claims for this code.

        Raises: SignOnRefused, ProviderTrouble.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        answer = await self._exchange_code(form)
        token = answer.get("id_token")
        if not isinstance(token, str) or len(token) > ID_TOKEN_BYTES:
            raise SignOnRefused(
                "the OpenID Connect provider has answered without an ID token",
                hint=f"log in again; {SETTINGS}",
            )
        claim_values = await self._verify_id_token(token)
        check_claims(claim_values, self.rule, nonce=nonce, now=self._clock.wall())
        return claim_values

    async def _exchange_code(self, form: dict[str, str]) -> Mapping[str, Any]:
        about, headers = await self._discovered(), {"Accept": "application/json"}
        auth_methods = about.get(
            "token_endpoint_auth_methods_supported", ["client_secret_basic"]
        )
        if self._secret is None:
            form = {**form, "client_id": self.rule.client_id}
        elif "client_secret_basic" in auth_methods:
            pair = (
                f"{quote(self.rule.client_id, safe='')}:{quote(self._secret, safe='')}"
            )
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form = {
                **form,
                "client_id": self.rule.client_id,
                "client_secret": self._secret,
            }
        status, answer = await self._ask("POST", about["token_endpoint"], form, headers)
        if status == 200:
            return answer
        error_code = str(answer.get("error", status))[:100]
        if error_code in ("invalid_grant", "invalid_request"):
            raise SignOnRefused(
                "the OpenID Connect provider did not accept the log-in code: "
                f"{error_code}",
                hint="log in again",
            )
        raise ProviderTrouble(
            f"the OpenID Connect provider {self.name} refused this head: {error_code}",
            hint=f"{SETTINGS}; to set the client secret: corral up --oidc-secret-file "
            "FILE",
        )

    async def _verify_id_token(self, token: str) -> Mapping[str, Any]:
        """Return the claims of an ID token, after a check that one of the provider's
        keys has signed it.

        If the key is unknown, the provider's keys are fetched once more, because
        providers rotate their keys.
        """
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        try:
            try:
                return jwt.decode(token, await self._key_set(), ALGORITHMS).claims
            except InvalidKeyIdError:
                return jwt.decode(
                    token, await self._key_set(anew=True), ALGORITHMS
                ).claims
        except (JoseError, ValueError) as error:
            raise SignOnRefused(
                "the signature of the provider's ID token is not valid: "
                f"{type(error).__name__}",
                hint=f"log in again; if this fails again, {SETTINGS}",
            ) from error

    async def _key_set(self, *, anew: bool = False) -> "KeySet":
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        now = self._clock.monotonic()
        young = KEYS_SECONDS if anew else KNOWN_SECONDS
        if self._keys is not None and now - self._keys[0] < young:
            return self._keys[1]
        _, answer = await self._ask("GET", (await self._discovered())["jwks_uri"])
        try:
            key_set = KeySet.import_key_set(answer)  # type: ignore[arg-type]
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise self._trouble(
                f"its keys cannot be read ({type(error).__name__})"
            ) from error
        self._keys = (now, key_set)
        return key_set

    async def _discovered(self) -> Mapping[str, Any]:
        now = self._clock.monotonic()
        if self._about is not None and now - self._about[0] < KNOWN_SECONDS:
            return self._about[1]
        status, about = await self._ask(
            "GET", self.rule.issuer.rstrip("/") + WELL_KNOWN
        )
        if status != 200 or about.get("issuer") != self.rule.issuer:
            complaint = (
                f"names the issuer {str(about.get('issuer'))[:200]}"
                if status == 200
                else f"has HTTP status {status}"
            )
            raise self._trouble(f"{WELL_KNOWN} {complaint}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_safe(str(about.get(name, ""))):
                raise self._trouble(f"its {name} is not an https address")
        self._about = (now, about)
        return about

    async def _ask(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Any = None,
    ) -> tuple[int, Mapping[str, Any]]:
        try:
            async with httpx2.AsyncClient(timeout=ANSWER_SECONDS) as http:
                answer = await http.request(method, url, data=form, headers=headers)
                answer_fields = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise self._trouble(f"{type(error).__name__}") from error
        if not isinstance(answer_fields, dict):
            raise self._trouble("its answer is not a JSON object")
        return answer.status_code, answer_fields

    def _trouble(self, why: str) -> ProviderTrouble:
        return ProviderTrouble(
            f"{self.name} does not answer like an OpenID Connect provider: {why}",
            hint="try again; or log in with the link that this command prints: corral "
            "ui",
        )


def is_safe(url: str) -> bool:
    """Return whether the URL is HTTPS, or HTTP on loopback."""
    url_parts = urlsplit(url)
    return url_parts.scheme == "https" or (
        url_parts.scheme == "http" and is_loopback(url_parts.hostname or "")
    )


def rule_of(settings: ClusterSettings) -> SignOnRule | None:
    """Return the sign-on rule of the settings; None without a provider.

    Raises: SpecInvalid if the settings are incomplete.
    """
    if settings.oidc_issuer is None:
        return None
    if settings.oidc_client_id is None or not is_safe(settings.oidc_issuer):
        raise SpecInvalid(
            f"--oidc-issuer {settings.oidc_issuer[:200]} must be an https address, and "
            "--oidc-client-id must be given with it",
            hint="for example: corral up --oidc-issuer https://login.example.org/realms/ml "
            "--oidc-client-id corral --oidc-role ml-team=user",
        )
    return SignOnRule(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        user_claim=settings.oidc_user_claim,
        role_claim=settings.oidc_role_claim,
        roles=tuple(
            _parse_role_mapping(role_mapping) for role_mapping in settings.oidc_roles
        ),
        domain=settings.oidc_domain,
        hosted_domain=settings.oidc_hosted_domain,
        creates=settings.oidc_create,
        reserved=RESERVED | system_accounts(),
    )


def system_accounts(login_defs: Path = LOGIN_DEFS) -> frozenset[str]:
    """Return the names of this machine's system accounts: those whose uid is below the
    lowest uid for people."""
    lowest_uid = PEOPLE_FROM_UID
    with suppress(OSError, ValueError):
        line_fields = [line.split() for line in login_defs.read_text().splitlines()]
        lowest_uid = next(
            (int(line[1]) for line in line_fields if line[:1] == ["UID_MIN"]),
            lowest_uid,
        )
    return frozenset(
        account.pw_name.lower()
        for account in pwd.getpwall()
        if account.pw_uid < lowest_uid
    )


def _parse_role_mapping(word: str) -> tuple[str, Role]:
    """Parse GROUP=ROLE, a value of --oidc-role. Raises: SpecInvalid if it has no group,
    or the role is unknown."""
    group, _, role = word.rpartition("=")
    if not group or role not in LADDER:
        raise SpecInvalid(
            f"--oidc-role {word[:100]} is not valid: it must be GROUP=ROLE with a "
            "known role",
            hint="write --oidc-role GROUP=ROLE; the roles are " + ", ".join(LADDER),
        )
    return group, Role(role)


def provider_of(settings: ClusterSettings, clock: Clock) -> Provider | None:
    """Return the provider of the settings; None if they name none.

    Raises: SpecInvalid if the settings are incomplete, Conflict if the secret's file
    cannot be used.
    """
    rule = rule_of(settings)
    if rule is None:
        return None
    return Provider(rule, provider_secret(settings), clock)


def provider_secret(settings: ClusterSettings) -> str | None:
    """Return the client secret from its file; None for a public client, which has no
    secret file.

    Raises: Conflict if the file cannot be used, for example because others may read it.
    """
    file = settings.oidc_secret_file
    if file is None:
        return None
    path = Path(file)
    try:
        if path.stat().st_mode & 0o077:
            raise Conflict(
                f"{path} contains a secret, but other users may read it",
                hint=f"run: chmod 600 {path}",
            )
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise Conflict(
            f"the secret of the OIDC client cannot be read from {path}: {error}",
            hint="run: corral down; corral up --oidc-secret-file FILE",
        ) from error
