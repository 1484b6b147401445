"""Options of `corral up` for sign-in methods other than tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from corral.cli.option_types import Claim, GroupRole, Identifier, MailDomain, Url


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SignOnOptions:
    """Options of an OpenID Connect provider for the pages."""

    issuer: Annotated[
        Url | None,
        Parameter(
            name="--oidc-issuer",
            help="Address of an OpenID Connect provider, whose people log in to the pages.",
        ),
    ] = None
    client_id: Annotated[
        Identifier | None,
        Parameter(name="--oidc-client-id", help="What this cluster is called there."),
    ] = None
    secret_file: Annotated[
        Path | None,
        Parameter(
            name="--oidc-secret-file",
            help="A file (0600) with the client's secret; or set CORRAL_OIDC_SECRET.",
        ),
    ] = None
    roles: Annotated[
        tuple[GroupRole, ...],
        Parameter(
            name="--oidc-role",
            negative="",
            show_default=False,
            help="What a group there is here, GROUP=ROLE; * is everybody; may be repeated.",
        ),
    ] = ()
    role_claim: Annotated[
        Claim | None,
        Parameter(name="--oidc-role-claim", help="The claim with the groups (groups)."),
    ] = None
    user_claim: Annotated[
        Claim | None,
        Parameter(
            name="--oidc-user-claim",
            help="The claim that names the user (preferred_username).",
        ),
    ] = None
    domain: Annotated[
        MailDomain | None,
        Parameter(
            name="--oidc-domain",
            help="Where users are named by e-mail addresses: whose count, by what is before the @.",
        ),
    ] = None

    hosted_domain: Annotated[
        MailDomain | None,
        Parameter(
            name="--oidc-hosted-domain",
            help="With Google: the Workspace domain whose accounts may log in (--oidc-domain).",
        ),
    ] = None
    create: Annotated[
        bool | None,
        Parameter(
            name="--oidc-create",
            negative="--no-oidc-create",
            help="Whether the first log-in makes the user; else an admin links each.",
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        return {
            "oidc_issuer": self.issuer,
            "oidc_client_id": self.client_id,
            "oidc_secret_file": str(self.secret_file.absolute())
            if self.secret_file
            else None,
            "oidc_roles": self.roles or None,
            "oidc_role_claim": self.role_claim,
            "oidc_user_claim": self.user_claim,
            "oidc_domain": self.domain,
            "oidc_hosted_domain": self.hosted_domain,
            "oidc_create": self.create,
        }
