"""`corral user add`, `ls`, `show`, `set` and `rm`; `corral token create`, `ls` and
`revoke`; `corral audit`."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from corral.cli.embedded_head import say_who_is_kept_out
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, declined
from corral.cli.option_types import LifeTime, UserName
from corral.cli.printing import (
    clean,
    clock_text,
    note,
    print_json,
    say,
    show_pairs,
    show_table,
    table,
)
from corral.cli.user_quotas import UserQuotaOptions, show_quotas, show_rates
from corral.domain.units import count_of, size_text
from corral.domain.users import MOST_MONTH_TOKENS

if TYPE_CHECKING:
    from corral.wire import users

Role = Literal["viewer", "user", "operator", "admin"]
TokenRole = Literal["caller", "viewer", "user", "operator", "admin"]
LONGEST_SECONDS = 3650 * 86400.0  # as the head takes it
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def add(name: str, /, *, role: Role = "user", common: Change = Change()) -> None:  # noqa: B008
    """Add a user, who may own jobs. Then create a token for the user: corral token
    create --user NAME.

    Args:
        name: Name of the user.
        role: viewer may only read, user may also submit jobs, operator may also stop
            jobs of others and cordon nodes, admin may also manage users, tokens and the
            cluster.
    """
    with common.client() as client:
        user_view = client.add_user(name, role=role)
        if common.json:
            print_json(user_view)
            return
        say(f"{user_view.name}: {user_view.role}")
        note(
            f"to give {user_view.name} access, run: corral token create --user "
            f"{user_view.name}"
        )
        say_who_is_kept_out(common, client)


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the users."""
    with common.client() as client:
        user_views = client.users()
    if common.json:
        print_json({"users": [user.model_dump(mode="json") for user in user_views]})
        return
    rows = table("NAME", "ROLE", "STATE", "SINCE")
    for user_view in user_views:
        rows.add_row(
            user_view.name,
            user_view.role,
            _account_state(user_view),
            clock_text(user_view.created_at),
        )
    show_table(rows)


def show(name: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show one user, their quotas and their tokens.

    Args:
        name: Name of the user.
    """
    with common.client() as client:
        user_detail = client.user(name)
        tokens = [
            token
            for token in client.tokens()
            if token.user == name and token.node is None
        ]
    if common.json:
        token_fields = [token.model_dump(mode="json") for token in tokens]
        print_json({**user_detail.model_dump(mode="json"), "tokens": token_fields})
        return
    created_text = clock_text(user_detail.created_at)
    log_in = (
        f"{clean(user_detail.subject)} of {clean(user_detail.issuer or '')}"
        if user_detail.subject
        else "none"
    )
    show_pairs(
        [
            ("user", user_detail.name),
            ("role", user_detail.role),
            ("state", _account_state(user_detail)),
            ("since", created_text),
            ("log-in", log_in),
        ]
    )
    say()
    show_quotas(user_detail.quotas)
    if user_detail.log_bytes_dropped:
        dropped = size_text(user_detail.log_bytes_dropped)
        note(
            f"{dropped} of the user's logs were removed because of the quotas "
            "log_bytes and job_log_bytes"
        )
    say()
    show_rates(user_detail.rates)
    if tokens:
        say()
        _show_tokens(tokens)


def _account_state(user: "users.UserView") -> str:
    return "disabled" if user.disabled else "enabled"


def put(
    name: str,
    /,
    *,
    role: Role | None = None,
    disable: _Flag = False,
    enable: _Flag = False,
    limits: UserQuotaOptions = UserQuotaOptions(),  # noqa: B008 - frozen
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Change a user's role, quotas or access. Running jobs continue.

    Args:
        name: Name of the user.
        role: New role of the user: viewer, user, operator or admin.
        disable: Refuse all requests of the user.
        enable: Accept requests of a disabled user again.
    """
    if disable and enable:
        raise Usage(
            "--disable and --enable cannot be combined",
            hint="leave out --disable or --enable",
        )
    if role is None and not disable and not enable and not limits.given:
        raise Usage(
            f"no change of the user {name} was given",
            hint=f"add an option, for example: corral user set {name} --role operator",
        )
    if not common.agreed(f"change the user {name}?"):
        raise declined()
    disabled = True if disable else False if enable else None
    with common.client() as client:
        user_view = client.set_user(
            name, role=role, disabled=disabled, limits=limits.given
        )
    if common.json:
        print_json(user_view)
    else:
        say(f"{user_view.name}: {user_view.role}, {_account_state(user_view)}")


def rm(name: str, /, *, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Remove a user, their tokens and their secrets. A user with unfinished jobs is not
    removed. Secrets for all users stay, and become yours.

    Args:
        name: Name of the user.
    """
    if not common.agreed(
        f"remove the user {name}, their tokens and their secrets?", destroys=True
    ):
        raise declined()
    with common.client() as client:
        removed = client.remove_user(name)
    if common.json:
        print_json(removed)
        return
    say(f"{name} is removed")
    note(
        f"tokens revoked: {removed.tokens_revoked}, secrets removed: "
        f"{removed.secrets_removed}, secrets for all users that are yours now: "
        f"{removed.secrets_kept}"
    )


def create_token(
    user: UserName | None = None,
    *,
    role: TokenRole | None = None,
    expires: LifeTime | None = None,
    tokens_per_month: Annotated[str | None, Parameter(metavar="N")] = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Create a token and print it once: the cluster stores only its hash.

    Args:
        user: User of the new token (default: you).
        role: Highest role that the token allows (default: the role of the user); with
            caller, the token may call services and nothing else.
        expires: Time after which the token expires: 12h, 90d or never (default: the
            cluster's --token-days, else 30d).
        tokens_per_month: Most tokens of services, in and out, that its requests may use
            in a calendar month: 500k, 5M (default: only the limits of its user hold).
    """
    never = expires == "never"
    seconds = (
        None if expires is None or never else _parse_seconds(expires, "--expires 30d")
    )
    if seconds is not None and not 1.0 <= seconds <= LONGEST_SECONDS:
        raise Usage(
            f"--expires {expires} is not from 1s to 3650d",
            hint="write, for example: --expires 30d",
        )
    with common.client() as client:
        created_token = client.create_token(
            user=user,
            role=role,
            expires_seconds=seconds,
            never_expires=never,
            tokens_per_month=_month_tokens(tokens_per_month),
        )
    if common.json:
        print_json(created_token)
        return
    say(created_token.token)
    expiry_text = (
        f", valid until {clock_text(created_token.expires_at)}"
        if created_token.expires_at
        else ""
    )
    budget = created_token.tokens_per_month
    budget_text = "" if budget is None else f", {budget:,} tokens a month"
    note(
        f"token {created_token.id}: role {created_token.role}, user "
        f"{created_token.user}{expiry_text}{budget_text}; the token is not shown again"
    )
    if created_token.is_shortened:
        note(
            "it expires earlier than asked, with the token that created it; a token for "
            "another user may last longer: corral token create --user NAME"
        )


def _parse_seconds(text: str, example: str) -> float:
    from corral.domain.units import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise Usage(str(error), hint=f"write, for example: {example}") from None


def _month_tokens(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        tokens = count_of(text)
    except ValueError as error:
        tokens, reason = 0, str(error)
    else:
        reason = f"{text} is not from 1 to {MOST_MONTH_TOKENS:,}"
    if not 1 <= tokens <= MOST_MONTH_TOKENS:
        raise Usage(
            f"--tokens-per-month: {reason}",
            hint="write, for example: --tokens-per-month 5M",
        )
    return tokens


def ls_tokens(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List tokens of users and nodes by id; never the tokens themselves."""
    with common.client() as client:
        token_views = client.tokens()
    if common.json:
        print_json(
            {
                "tokens": [
                    token_view.model_dump(mode="json") for token_view in token_views
                ]
            }
        )
        return
    _show_tokens(token_views)


def _show_tokens(tokens: "list[users.TokenView]") -> None:
    has_budgets = any(token.tokens_per_month is not None for token in tokens)
    budget_columns = ("TOKENS THIS MONTH",) if has_budgets else ()
    columns = ("TOKEN", "USER", "ROLE", "STATE", "EXPIRES", "LAST USED")
    rows = table(*columns, *budget_columns)
    for token in tokens:
        expiry_text = clock_text(token.expires_at) if token.expires_at else "never"
        last_use_text = clock_text(token.used_at) if token.used_at else "never"
        budget = token.tokens_per_month
        used_text = (
            "" if budget is None else f"{token.tokens_this_month or 0:,} of {budget:,}"
        )
        cells = (token.id, token.user, token.role, token.state, expiry_text)
        budget_cells = (used_text,) if has_budgets else ()
        rows.add_row(*cells, last_use_text, *budget_cells)
    show_table(rows)


def revoke_token(*tokens: str, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Revoke tokens at once.

    Args:
        tokens: Ids of the tokens; corral token ls lists them.
    """
    if not tokens:
        raise Usage(
            "the id of a token is missing after: corral token revoke",
            hint="run: corral token revoke ID; for the ids, run: corral token ls",
        )
    if not common.agreed(f"revoke {', '.join(tokens)}?", destroys=True):
        raise declined()
    with common.client() as client:
        token_views = [client.revoke_token(id) for id in tokens]
    if common.json:
        document = (
            token_views[0].model_dump(mode="json") if len(token_views) == 1 else None
        )
        print_json(
            document
            or {"tokens": [token.model_dump(mode="json") for token in token_views]}
        )
        return
    for token in token_views:
        say(f"{token.id}: {token.state} (role {token.role}, user {token.user})")
