"""Rules for users, tokens and the audit log that apply to every store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from corral.domain.errors import Conflict, TokenRevoked
from corral.domain.ids import TokenId, UserName, job_id
from corral.domain.job import JobSpec
from corral.domain.pilot import is_part
from corral.domain.placement_constraints import label_text
from corral.domain.requests import (
    ApplyService,
    Cancel,
    ChangeJobs,
    ChangeSave,
    CheckNodes,
    CordonSuspects,
    Requeue,
    Resume,
    RollBackService,
    ScaleService,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    StopService,
    StoredRequest,
    Submit,
    Suspend,
)
from corral.domain.units import ids_text
from corral.domain.users import (
    ANOTHER_NODE,
    NODE_TOKEN_SECONDS,
    AuditEntry,
    ProviderIdentity,
    Role,
    Speaker,
    Token,
    TokenKind,
    User,
)

NAMES_SHOWN: Final = 3
CHANGES_SHOWN: Final = 50


def check_governed(users: Iterable[User], before: User, after: User | None) -> None:
    """Check that at least one admin remains after a user is changed.

    Raises: Conflict if not.
    """
    if not before.governs or (after is not None and after.governs):
        return
    if not any(user.governs for user in users if user.name != before.name):
        raise Conflict(
            f"{before.name} is the last admin: afterwards no user could manage users",
            hint="make another user an admin first: corral user set NAME --role admin",
        )


def check_identity_free(
    users: Iterable[User], name: UserName, identity: ProviderIdentity
) -> None:
    """Check that the provider's identity does not already log in as another user.
    Raises: Conflict if it does."""
    for user in users:
        if user.identity == identity and user.name != name:
            raise Conflict(
                f"{identity.subject} of {identity.issuer} is already linked to the user "
                f"{user.name}",
                hint=f"first run: corral user unlink {user.name}",
            )


def changed(
    user: User,
    role: Role | None,
    disabled: bool | None,
    limits: Mapping[str, int | None] | None,
) -> User:
    """Return the user with the given values; a value of None leaves the field
    unchanged."""
    own_limits = {**dict(user.limits), **(limits or {})}
    return replace(
        user,
        role=user.role if role is None else role,
        disabled=user.disabled if disabled is None else disabled,
        limits=tuple(
            sorted(
                (name, limit_value)
                for name, limit_value in own_limits.items()
                if limit_value is not None
            )
        ),
    )


def ended_with_user(
    before: User, after: User | None, tokens: Iterable[Token], at: float
) -> list[Token]:
    """Return the tokens that a change of a user ends, marked as revoked at this time:
    all tokens of a removed user; sessions and log-in links of a user whose role
    changes, or who is disabled."""
    if after is None:
        ended_kinds = set(TokenKind)
    elif after.role != before.role or (after.disabled and not before.disabled):
        ended_kinds = {TokenKind.SESSION, TokenKind.LINK}
    else:
        return []
    return [
        replace(token, revoked_at=at)
        for token in tokens
        if token.user == before.name
        and token.node is None
        and token.revoked_at is None
        and token.kind in ended_kinds
    ]


def ended_with_token(revoked: Token, tokens: Iterable[Token], at: float) -> list[Token]:
    """Return the sessions and log-in links that were opened with this token, marked as
    revoked."""
    return [
        replace(token, revoked_at=at)
        for token in tokens
        if token.origin == revoked.id and token.revoked_at is None
    ]


def spent(token: Token | None, at: float) -> Token | None:
    """Return the join token with one use fewer; None if the token is unknown, used up,
    revoked or expired."""
    if token is None or not token.uses_left or token.revoked_at is not None:
        return None
    if token.expires_at is not None and at >= token.expires_at:
        return None
    return replace(token, uses_left=token.uses_left - 1)


def renewed(
    tokens: Iterable[Token], id: TokenId, made: Token, at: float
) -> tuple[Token, list[TokenId]] | None:
    """Replace the token `id` of a node, or of a cluster's directory, by `made`.

    Returns: the earlier token with its new expiry, and the ids of the node's other
    tokens, which are to be deleted; None when there is no valid token to replace. The
    earlier token of a batch allocation's node (a part) is revoked at once.
    Raises: TokenRevoked when a later token of the node has been used already: this
    token was then copied.
    """
    tokens = list(tokens)
    old_token = next((token for token in tokens if token.id == id), None)
    if (
        old_token is None
        or old_token.revoked_at is not None
        or made.node != old_token.node
    ):
        return None
    other_tokens = [
        other_token
        for other_token in tokens
        if other_token.node == old_token.node and other_token.id not in (id, made.id)
    ]
    siblings = [] if old_token.node is None else other_tokens
    if any(
        sibling.created_at > old_token.created_at and sibling.used_at is not None
        for sibling in siblings
    ):
        raise TokenRevoked(
            f"the token {id} of {old_token.user} was replaced by a newer one, which is in use",
            hint="if this is the right machine, its token was copied to another one: "
            f"{ANOTHER_NODE}",
        )
    forgotten = [sibling.id for sibling in siblings]
    if old_token.node is not None and is_part(
        old_token.node
    ):  # its ranks may have read it
        return replace(old_token, revoked_at=at), forgotten
    expiry_limit = at + NODE_TOKEN_SECONDS
    return replace(
        old_token, expires_at=min(old_token.expires_at or expiry_limit, expiry_limit)
    ), forgotten


def check_name_free(tokens: Iterable[Token], made: Token) -> None:
    """Check that the node has no valid token yet, and that the new token is not in use
    already. Raises: Conflict if so."""
    tokens = list(tokens)
    if any(token.sha256 == made.sha256 for token in tokens):
        raise Conflict(
            "the token that the machine sent for itself is already in use",
            hint="join again with a new token",
        )
    if any(token.node == made.node and token.revoked_at is None for token in tokens):
        raise Conflict(
            f"a node named {made.node} already exists",
            hint="choose another name: corral join ... --name NAME; or, if the old node is "
            f"gone for good, ask an operator to run: corral node rm {made.node}",
        )


def used_later(token: Token, at: float) -> Token:
    """Return the token with this time as its last use, unless a later use is recorded:
    times arrive in any order."""
    return token if (token.used_at or 0.0) >= at else replace(token, used_at=at)


def entry_of(request: StoredRequest, speaker: Speaker) -> AuditEntry:
    """Return the audit log's entry for an acknowledged request."""
    action, on, detail = _describe_request(request)
    return AuditEntry(
        at=request.at,
        by=request.by,
        token=speaker.token,
        what=action,
        on=on,
        detail=detail,
        source=speaker.source,
        kind=speaker.kind,
    )


def _describe_request(request: StoredRequest) -> tuple[str, str, str]:
    """Return (action, object, detail) of a request."""
    match request.asked:
        case Submit(specs=specs):
            return "job.submit", job_id(request.sequence), _names_text(specs)
        case Cancel(job=job):
            return "job.cancel", job, ""
        case Suspend(job=job):
            return "job.suspend", job, ""
        case Resume(job=job, save=save):
            return "job.resume", job, "" if save is None else f"from step {save[1]}"
        case Requeue(job=job):
            return "job.requeue", job, ""
        case ChangeJobs(jobs=changed, to=to):
            return f"job.{to}", ids_text(changed), f"{len(changed):,} jobs"
        case SetJob(job=job):
            return "job.set", job, str(request.asked)
        case ChangeSave(save=changed_save, to=to):
            step_text = f"step {changed_save.step}"
            return f"checkpoint.{to}", changed_save.job, step_text
        case SetNode(node=node, to=to):
            return f"node.{to}", node, ""
        case CordonSuspects():
            return "node.cordon", "all suspects", ""
        case CheckNodes(nodes=checked, kinds=kinds):
            left_out = len(checked) - NAMES_SHOWN
            first_nodes = ", ".join(checked[:NAMES_SHOWN])
            on = f"{first_nodes} and {left_out} more" if left_out > 0 else first_nodes
            return "node.check", on, ", ".join(kinds)
        case SetLabels(node=node, labels=labels):
            return "node.label", node, " ".join(label_text(*label) for label in labels)
        case ApplyService(spec=spec):
            return "service.apply", spec.name, f"{spec.replicas_text} replicas"
        case ScaleService(service=name, min_replicas=low, max_replicas=high):
            return "service.scale", name, f"{low}..{high} replicas"
        case RollBackService(service=name, revision=revision):
            target = "" if revision is None else f"to revision {revision}"
            return "service.rollback", name, target
        case StopService(service=name):
            return "service.stop", name, ""
        case SetQueues(removed=removed) if removed:
            return "queue.remove", ", ".join(removed), ""
        case SetQueues(queues=queues):
            shown_names = [queue.name for queue in queues[:NAMES_SHOWN]]
            more_text = (
                f" and {len(queues) - NAMES_SHOWN} more"
                if len(queues) > NAMES_SHOWN
                else ""
            )
            return (
                "queue.set",
                f"{', '.join(shown_names)}{more_text}",
                _describe_queue_changes(request.asked),
            )


def _names_text(specs: Sequence[JobSpec]) -> str:
    """Return the names of a submission's jobs. For example: train (8 jobs)."""
    names = list(dict.fromkeys(spec.name for spec in specs))
    hidden_count = len(names) - NAMES_SHOWN
    more_text = f" and {hidden_count} more" if hidden_count > 0 else ""
    jobs = f" ({len(specs)} jobs)" if len(specs) > 1 else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more_text}{jobs}"


def _describe_queue_changes(asked: SetQueues) -> str:
    """Return the changes of queues as text. For example: all queues replaced; ~ lab:
    weight: none -> 2."""
    change_texts = ["all queues replaced"] if asked.whole else []
    hidden_count = len(asked.changes) - CHANGES_SHOWN
    change_texts += [
        *asked.changes[:CHANGES_SHOWN],
        *([f"and {hidden_count} more"] if hidden_count > 0 else []),
    ]
    return "; ".join(change_texts)
