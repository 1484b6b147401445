"""What every store holds to about users, tokens and the audit log."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from corral.domain.errors import Conflict
from corral.domain.ids import TokenId, job_id
from corral.domain.people import AuditEntry, Token, User
from corral.domain.place import label_text
from corral.domain.wishes import (
    BarSuspects,
    Cancel,
    CheckNodes,
    Requeue,
    Resume,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    Submit,
    Suspend,
    Wish,
)

NAMES_SHOWN: Final = 3
CHANGES_SHOWN: Final = 50


def check_governed(users: Iterable[User], before: User, after: User | None) -> None:
    """Somebody must be left who can undo it. Raises: Conflict."""
    if not before.governs or (after is not None and after.governs):
        return
    if not any(user.governs for user in users if user.name != before.name):
        raise Conflict(
            f"{before.name} is the last admin: nobody could undo it",
            hint="make another one first: corral user set NAME --role admin",
        )


def spent(token: Token | None, at: float) -> Token | None:
    """The join token, used once more; None when it lets in nobody (any more)."""
    if token is None or not token.uses_left or token.revoked_at is not None:
        return None
    if token.expires_at is not None and at >= token.expires_at:
        return None
    return replace(token, uses_left=token.uses_left - 1)


def check_name_free(tokens: Iterable[Token], made: Token) -> None:
    """A node has one identity, and no two have the same. Raises: Conflict."""
    tokens = list(tokens)
    if any(one.sha256 == made.sha256 for one in tokens):
        raise Conflict("this token is known already", hint="join again, with one of your own")
    if any(one.node == made.node and one.revoked_at is None for one in tokens):
        raise Conflict(
            f"there is a node {made.node} already",
            hint=f"choose another name: corral join ... --name NAME; or, if that one is gone for "
            f"good, an operator may run: corral node rm {made.node}",
        )


def used_later(token: Token, at: float) -> Token:
    """The token, used at this moment too: moments come in any order."""
    return token if (token.used_at or 0.0) >= at else replace(token, used_at=at)


def entry_of(wish: Wish, token: TokenId | None) -> AuditEntry:
    """The audit log's line of an acknowledged wish."""
    what, on, detail = _words(wish)
    return AuditEntry(at=wish.at, by=wish.by, token=token, what=what, on=on, detail=detail)


def _words(wish: Wish) -> tuple[str, str, str]:
    """(what, on what, detail)"""
    match wish.asked:
        case Submit(specs=specs):
            names = list(dict.fromkeys(spec.name for spec in specs))
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            jobs = f" ({len(specs)} jobs)" if len(specs) > 1 else ""
            said = f"{', '.join(names[:NAMES_SHOWN])}{more}{jobs}"
            return "job.submit", job_id(wish.sequence), said
        case Cancel(job=job):
            return "job.cancel", job, ""
        case Suspend(job=job):
            return "job.suspend", job, ""
        case Resume(job=job):
            return "job.resume", job, ""
        case Requeue(job=job):
            return "job.requeue", job, ""
        case SetJob(job=job):
            return "job.set", job, str(wish.asked)
        case SetNode(node=node, to=to):
            return f"node.{to}", node, ""
        case BarSuspects():
            return "node.cordon", "all suspects", ""
        case CheckNodes(nodes=checked, kinds=kinds):
            left = len(checked) - NAMES_SHOWN
            first = ", ".join(checked[:NAMES_SHOWN])
            on = f"{first} and {left} more" if left > 0 else first
            return "node.check", on, ", ".join(kinds)
        case SetLabels(node=node, labels=labels):
            return "node.label", node, " ".join(label_text(*one) for one in labels)
        case SetQueues(removed=removed) if removed:
            return "queue.remove", ", ".join(removed), ""
        case SetQueues(queues=queues):
            shown = [queue.name for queue in queues[:NAMES_SHOWN]]
            more = f" and {len(queues) - NAMES_SHOWN} more" if len(queues) > NAMES_SHOWN else ""
            return "queue.set", f"{', '.join(shown)}{more}", _changed(wish.asked)


def _changed(asked: SetQueues) -> str:
    """For example: the whole tree; ~ lab: weight: none -> 2."""
    parts = ["the whole tree"] if asked.whole else []
    more = len(asked.changes) - CHANGES_SHOWN
    parts += [*asked.changes[:CHANGES_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    return "; ".join(parts)
