"""What every store holds to about users, tokens and the audit log."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from corral.domain.errors import Conflict
from corral.domain.ids import TokenId, job_id
from corral.domain.people import AuditEntry, Token, User
from corral.domain.place import label_text
from corral.domain.wishes import (
    Cancel,
    Resume,
    SetLabels,
    SetNode,
    SetQueues,
    Submit,
    Suspend,
    Wish,
)

NAMES_SHOWN: Final = 3


def check_governed(users: Iterable[User], before: User, after: User | None) -> None:
    """Somebody must be left who can undo it. Raises: Conflict."""
    if not before.governs or (after is not None and after.governs):
        return
    if not any(user.governs for user in users if user.name != before.name):
        raise Conflict(
            f"{before.name} is the last admin: nobody could undo it",
            hint="make another one first: corral user set NAME --role admin",
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
        case SetNode(node=node, to=to):
            return f"node.{to}", node, ""
        case SetLabels(node=node, labels=labels):
            return "node.label", node, " ".join(label_text(*one) for one in labels)
        case SetQueues(queues=queues, whole=whole):
            shown = [queue.name for queue in queues[:NAMES_SHOWN]]
            more = f" and {len(queues) - NAMES_SHOWN} more" if len(queues) > NAMES_SHOWN else ""
            return "queue.set", f"{', '.join(shown)}{more}", "the whole tree" if whole else ""
