"""Log-in through an OpenID Connect provider: check of the claims, and the identity, the
user and the role that follow from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import urlsplit

from corral.domain.errors import Forbidden, SpecInvalid, Unauthorised
from corral.domain.ids import NAME_RULE, UserName, is_name
from corral.domain.users import LADDER, ProviderIdentity, Role, User

LEEWAY_SECONDS: Final = 60.0  # that the provider's clock and ours may differ
EVERYBODY: Final = "*"  # in the place of a group
EMAIL: Final = "email"
SUBJECT_LETTERS: Final = 255  # OpenID Connect Core 1.0, section 2
# Entra gives each application another `sub`, and names are changed there: `tid` and
# `oid` stay.
ENTRA: Final = (
    "login.microsoftonline.com",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "sts.windows.net",
)
GOOGLE: Final = "accounts.google.com"
# Accounts of common systems and services, in addition to those of the head's machine.
_SYSTEM: Final = """
root toor daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats
nobody nogroup systemd-network systemd-resolve messagebus syslog sshd ntp chrony polkitd rpc dbus
munge slurm slurmd slurmctld postgres mysql redis ray kubelet containerd docker nginx monitoring
prometheus
"""
RESERVED: Final = frozenset(_SYSTEM.split())
SETTINGS: Final = (
    "ask an admin to compare --oidc-issuer and --oidc-client-id with the provider's "
    "settings"
)


class SignOnRefused(Unauthorised):
    """The answer of the provider does not identify a user."""

    code = "sign_on_refused"


class IdentityNotLinked(Forbidden):
    """The provider has identified the person, but the identity is linked to no user,
    and no user may be created."""

    code = "identity_not_linked"

    def __init__(
        self, message: str, *, identity: ProviderIdentity, name: UserName
    ) -> None:
        super().__init__(message)
        self.identity = identity
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOnRule:
    """Rule for which people of a provider may log in, and what they may do in the
    cluster.

    Args:
        roles: Groups, and the role of their members.
        domain: Domain of the e-mail addresses that name users, by the part before the
            @.
        hosted_domain: Google Workspace domain that the claim `hd` must name.
        creates: Whether the first log-in creates the user.
        reserved: Names of accounts that no first log-in may take.
    """

    issuer: str
    client_id: str
    user_claim: str = "preferred_username"
    role_claim: str = "groups"
    roles: tuple[tuple[str, Role], ...] = ()
    domain: str | None = None
    hosted_domain: str | None = None
    creates: bool = True
    reserved: frozenset[str] = RESERVED

    def __post_init__(self) -> None:
        if not self.roles or any(role not in LADDER for _, role in self.roles):
            raise SpecInvalid(
                "no --oidc-role assigns a role to a group: no user could log in",
                hint=f"for example: corral up --oidc-role ml-team=user --oidc-role {EVERYBODY}="
                "viewer; roles are " + ", ".join(LADDER),
            )


def check_claims(
    claims: Mapping[str, Any], rule: SignOnRule, *, nonce: str, now: float
) -> None:
    """Check the claims of an ID token. The signature is not checked here. Times are
    seconds since 1970.

    Raises: SignOnRefused. Source: OpenID Connect Core 1.0, section 3.1.3.7.
    """
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    fault_text = ""
    if claims.get("iss") != rule.issuer:
        fault_text = f"its issuer (iss) is not {rule.issuer}"
    elif not isinstance(audiences, list) or rule.client_id not in audiences:
        fault_text = f"its audience (aud) is not {rule.client_id}"
    elif claims.get("azp", rule.client_id) != rule.client_id:
        fault_text = f"its authorized party (azp) is not {rule.client_id}"
    elif _time_claim(claims, "exp") is None or _time_claim(claims, "iat") is None:
        fault_text = "it has no valid issue time (iat) or expiry time (exp)"
    elif now >= (_time_claim(claims, "exp") or 0.0) + LEEWAY_SECONDS:
        fault_text = "it has expired"
    elif (
        max(_time_claim(claims, "iat") or 0.0, _time_claim(claims, "nbf") or 0.0)
        > now + LEEWAY_SECONDS
    ):
        fault_text = "it is not valid yet: compare the clocks of the provider and of this machine"
    elif not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        fault_text = "it belongs to another log-in (its nonce differs)"
    if fault_text:
        raise SignOnRefused(
            f"the provider's ID token was rejected: {fault_text}",
            hint=f"log in again; if it fails again, {SETTINGS}",
        )


def _time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    claim = claims.get(name)
    if (
        not isinstance(claim, int | float)
        or isinstance(claim, bool)
        or not abs(claim) < 1e12
    ):
        return None
    return float(claim)


def identity_in(claims: Mapping[str, Any], rule: SignOnRule) -> ProviderIdentity:
    """Return the identity in the claims, which the provider never assigns to another
    person.

    Raises: Forbidden if the token lacks the claims, or if the account is in another
    Google domain.
    """
    _check_hosted_domain(claims, rule)
    names = ("tid", "oid") if urlsplit(rule.issuer).hostname in ENTRA else ("sub",)
    claim_values = [claims.get(name) for name in names]
    for name, claim_value in zip(names, claim_values, strict=True):
        if (
            not isinstance(claim_value, str)
            or not claim_value
            or not claim_value.isascii()
            or not claim_value.isprintable()
        ):
            raise Forbidden(
                f"the provider's ID token has no valid claim {name}, which identifies you",
                hint=SETTINGS,
            )
    subject = "/".join(str(claim_text) for claim_text in claim_values)
    if len(subject) > SUBJECT_LETTERS:
        raise Forbidden(
            f"the subject of the provider's ID token has {len(subject)} characters; at "
            f"most {SUBJECT_LETTERS} are allowed",
            hint=SETTINGS,
        )
    return ProviderIdentity(issuer=rule.issuer, subject=subject)


def _check_hosted_domain(claims: Mapping[str, Any], rule: SignOnRule) -> None:
    """Refuse accounts outside of the Google Workspace domain. Raises: Forbidden.

    Source: Google Identity, "OpenID Connect", validation of the claim `hd`.
    """
    required_domain = rule.hosted_domain
    if required_domain is None and urlsplit(rule.issuer).hostname == GOOGLE:
        required_domain = rule.domain
    claim = claims.get("hd")
    if required_domain is None or (
        isinstance(claim, str) and claim.lower() == required_domain.lower()
    ):
        return
    claim_text = claim[:100] if isinstance(claim, str) else "none"
    raise Forbidden(
        f"the account's hosted domain is {claim_text}; only accounts of "
        f"{required_domain} may log in",
        hint="log in with your organisation's account; or ask an admin to run: corral "
        "up --oidc-hosted-domain DOMAIN",
    )


def user_for(
    users: Iterable[User],
    identity: ProviderIdentity,
    claims: Mapping[str, Any],
    rule: SignOnRule,
) -> UserName:
    """Return the user that the identity logs in as: the linked user, else the name of a
    user to be created.

    The name in the claims is only a proposal of the provider: it never selects a user
    that exists. Raises: Forbidden, IdentityNotLinked.
    """
    users_by_user_name = {user.name: user for user in users}
    linked = next(
        (user for user in users_by_user_name.values() if user.identity == identity),
        None,
    )
    if linked is not None:
        return linked.name
    name = user_in(claims, rule)
    if (user := users_by_user_name.get(name)) is not None:
        link_text = (
            "is not linked to a log-in"
            if user.identity is None
            else "is linked to another log-in"
        )
        reason = f"the user {name} exists already and {link_text}"
    elif not rule.creates:
        reason = f"there is no user {name}, and a log-in does not create one here"
    elif name in rule.reserved:
        reason = (
            f"{name} is the name of a system account; a log-in does not create a user "
            "with this name"
        )
    else:
        return name
    raise IdentityNotLinked(reason, identity=identity, name=name)


def user_in(claims: Mapping[str, Any], rule: SignOnRule) -> UserName:
    """Return the user that the claims name. Raises: Forbidden."""
    claim = claims.get(rule.user_claim)
    if not isinstance(claim, str) or not claim:
        raise Forbidden(
            f"the provider's ID token has no claim {rule.user_claim}, which names the user",
            hint="ask an admin to add the claim to the ID token, or to choose another: "
            "corral up --oidc-user-claim CLAIM",
        )
    if rule.user_claim == EMAIL and claims.get("email_verified") is not True:
        raise Forbidden(
            f"the provider has not verified the e-mail address {claim[:100]}",
            hint="verify the address at the provider; or ask an admin to choose another "
            "claim: corral up --oidc-user-claim CLAIM",
        )
    name, separator, domain = claim.lower().partition("@")
    if separator and domain != (rule.domain or "").lower():
        raise Forbidden(
            f"{claim[:100]} is not in the e-mail domain that may log in here",
            hint="to allow the domain, ask an admin to run: corral up --oidc-domain "
            f"{domain[:100]}",
        )
    if not is_name(name):
        raise Forbidden(
            f"{claim[:100]!r} is not a valid user name: a name has {NAME_RULE}",
            hint="ask an admin to choose another claim: corral up --oidc-user-claim CLAIM",
        )
    return UserName(name)


def role_in(claims: Mapping[str, Any], rule: SignOnRule) -> Role:
    """Return the highest role that a group of the user gives in this cluster. Raises:
    Forbidden if no group gives one."""
    claim = claims.get(rule.role_claim, [])
    groups = [claim] if isinstance(claim, str) else claim
    user_groups = {EVERYBODY}
    if isinstance(groups, list):
        user_groups |= {
            user_group for user_group in groups if isinstance(user_group, str)
        }
    roles = [role for group, role in rule.roles if group in user_groups]
    if not roles:
        raise Forbidden(
            f"none of your groups ({rule.role_claim}) has a role in this cluster",
            hint="join a group that has a role, or ask an admin to run: corral up "
            "--oidc-role GROUP=viewer",
        )
    return max(roles, key=LADDER.index)
