"""The commands user link, user unlink and user pending: which identity of the OpenID
Connect provider logs in as which user."""

from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, declined
from corral.cli.option_types import Identifier, Url
from corral.cli.printing import clean, clock_text, print_json, say, show_table, table


def link(
    name: str,
    /,
    *,
    issuer: Url | None = None,
    subject: Identifier | None = None,
    pending: Identifier | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Link one identity of the OpenID Connect provider, and no other, to a user.

    Args:
        name: Name of the user.
        issuer: Address of the provider, exactly as in corral up --oidc-issuer. Required
            unless --pending is given.
        subject: Claim sub of the identity at the provider; with Microsoft Entra ID,
            TENANT-ID/OBJECT-ID. Required unless --pending is given.
        pending: Id of a refused log-in, whose identity is linked; corral user pending
            lists these ids. Replaces --issuer and --subject.
    """
    if (pending is None) != (issuer is not None and subject is not None):
        raise Usage(
            "the identity is missing: give either --pending, or --issuer and --subject",
            hint=f"run: corral user link {name} --pending ID; "
            "for the ids, run: corral user pending",
        )
    if not common.agreed(f"let {pending or subject} log in as {name}?"):
        raise declined()
    with common.client() as client:
        user_view = client.link_user(
            name, issuer=issuer, subject=subject, pending=pending
        )
    if common.json:
        print_json(user_view)
    else:
        say(
            f"user {user_view.name} is linked to the identity "
            f"{clean(user_view.subject or '')} of {clean(user_view.issuer or '')}"
        )


def unlink(name: str, /, *, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Remove the link of a user to an identity of the OpenID Connect provider. Open
    sessions continue.

    Args:
        name: Name of the user.
    """
    if not common.agreed(
        f"remove the link of the user {name} to the provider?", destroys=True
    ):
        raise declined()
    with common.client() as client:
        user_view = client.unlink_user(name)
    if common.json:
        print_json(user_view)
    else:
        say(
            f"user {user_view.name} can no longer log in through the provider; open "
            "sessions continue: to list them, run: corral token ls; to end one, run: "
            "corral token revoke ID"
        )


def pending(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List refused log-ins of the last day without a linked user."""
    with common.client() as client:
        log_in_views = client.pending_log_ins()
    if common.json:
        print_json(
            {"pending": [log_in.model_dump(mode="json") for log_in in log_in_views]}
        )
        return
    rows = table("ID", "PROPOSED USER", "SUBJECT", "ISSUER", "WHEN")
    for log_in_view in log_in_views:
        rows.add_row(
            log_in_view.id,
            log_in_view.name,
            clean(log_in_view.subject),
            clean(log_in_view.issuer),
            clock_text(log_in_view.at),
        )
    show_table(rows)
