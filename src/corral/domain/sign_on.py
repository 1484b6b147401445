"""Who somebody is by the word of an OpenID Connect provider: claims checked, a user, a role."""

from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Final

from corral.domain.errors import Forbidden, SpecInvalid, Unauthorised
from corral.domain.ids import NAME_RULE, UserName, is_name
from corral.domain.people import LADDER, Role

LEEWAY_SECONDS: Final = 60.0  # that the provider's clock and ours may differ
EVERYBODY: Final = "*"  # in the place of a group
EMAIL: Final = "email"
SETTINGS: Final = "an admin compares --oidc-issuer and --oidc-client-id with the provider's"


class SignOnRefused(Unauthorised):
    """What came back from the provider does not say who is there."""

    code = "sign_on_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOnRule:
    """Whom a provider may name, and what they may do here. `roles`: groups and what each makes of
    who is in it. `domain`: whose e-mail addresses are users, by what stands before the @."""

    issuer: str
    client_id: str
    user_claim: str = "preferred_username"
    role_claim: str = "groups"
    roles: tuple[tuple[str, Role], ...] = ()
    domain: str | None = None

    def __post_init__(self) -> None:
        if not self.roles or any(role not in LADDER for _, role in self.roles):
            raise SpecInvalid(
                "no group of the provider has a role here: nobody could log in",
                hint=f"for example: corral up --oidc-role ml-team=user --oidc-role {EVERYBODY}="
                "viewer; roles are " + ", ".join(LADDER),
            )


def check_claims(claims: Mapping[str, Any], rule: SignOnRule, *, nonce: str, now: float) -> None:
    """What an ID token must say beside its signature. Times are seconds since 1970.

    Raises: SignOnRefused. Source: OpenID Connect Core 1.0, section 3.1.3.7.
    """
    audience = claims.get("aud")
    meant = [audience] if isinstance(audience, str) else audience
    wrong = ""
    if claims.get("iss") != rule.issuer:
        wrong = f"it is of another issuer than {rule.issuer}"
    elif not isinstance(meant, list) or rule.client_id not in meant:
        wrong = f"it is meant for another than {rule.client_id}"
    elif claims.get("azp", rule.client_id) != rule.client_id:
        wrong = "it was given to another client"
    elif _time(claims, "exp") is None or _time(claims, "iat") is None:
        wrong = "it does not say from when until when it holds"
    elif now >= (_time(claims, "exp") or 0.0) + LEEWAY_SECONDS:
        wrong = "it has expired"
    elif max(_time(claims, "iat") or 0.0, _time(claims, "nbf") or 0.0) > now + LEEWAY_SECONDS:
        wrong = "it does not hold yet: compare the clocks of the provider and of this machine"
    elif not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        wrong = "it answers another log-in"
    if wrong:
        raise SignOnRefused(
            f"the provider's ID token is not taken: {wrong}",
            hint=f"log in again; if it stays so, {SETTINGS}",
        )


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if not isinstance(found, int | float) or isinstance(found, bool) or not abs(found) < 1e12:
        return None
    return float(found)


def user_in(claims: Mapping[str, Any], rule: SignOnRule) -> UserName:
    """Whom the claims name. Raises: Forbidden."""
    found = claims.get(rule.user_claim)
    if not isinstance(found, str) or not found:
        raise Forbidden(
            f"the provider does not say {rule.user_claim}",
            hint="an admin has it put into the ID token, or names another claim: corral up "
            "--oidc-user-claim CLAIM",
        )
    if rule.user_claim == EMAIL and claims.get("email_verified") is not True:
        raise Forbidden(
            f"the provider has not verified the address {found[:100]}",
            hint="verify it there; or an admin names another claim: corral up --oidc-user-claim",
        )
    name, at, domain = found.lower().partition("@")
    if at and domain != (rule.domain or "").lower():
        raise Forbidden(
            f"{found[:100]} is not of the domain whose people are users here",
            hint=f"if they should be, an admin runs: corral up --oidc-domain {domain[:100]}",
        )
    if not is_name(name):
        raise Forbidden(
            f"{found[:100]!r} cannot name a user",
            hint=f"a name is {NAME_RULE}; an admin may name another claim with --oidc-user-claim",
        )
    return UserName(name)


def role_in(claims: Mapping[str, Any], rule: SignOnRule) -> Role:
    """The highest role that a group of theirs has here. Raises: Forbidden without one."""
    found = claims.get(rule.role_claim, [])
    groups = [found] if isinstance(found, str) else found
    theirs = {EVERYBODY}
    if isinstance(groups, list):
        theirs |= {one for one in groups if isinstance(one, str)}
    roles = [role for group, role in rule.roles if group in theirs]
    if not roles:
        raise Forbidden(
            f"none of your groups ({rule.role_claim}) has a role in this cluster",
            hint="have yourself put into one of them, or ask an admin to run: corral up "
            "--oidc-role GROUP=viewer",
        )
    return max(roles, key=LADDER.index)
