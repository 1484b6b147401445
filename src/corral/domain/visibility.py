"""Visibility of jobs, and the settings that an operator of a queue may change."""

from collections.abc import Set
from dataclasses import replace
from typing import Final

from corral.domain.access_list import may_submit
from corral.domain.errors import Forbidden
from corral.domain.ids import QueueName, UserName
from corral.domain.queue import Queue
from corral.domain.queue_policy import Visibility
from corral.domain.queue_tree import QueueTree
from corral.domain.users import LADDER, Role

OTHERS: Final = "(others)"  # in place of the names of hidden users and jobs
# Settings of the topmost queue of an operator that take nothing from other queues.
OWN_SETTINGS: Final = ("allow", "most_per_user_millis", "idle", "policy", "visibility")
_WIDER: Final = (Visibility.OWN, Visibility.QUEUE, Visibility.ALL)


def operates(tree: QueueTree, queue: QueueName, user: UserName, role: Role) -> bool:
    """Return whether the user is an operator of this queue, or of the whole cluster."""
    if role not in LADDER or role == Role.VIEWER:
        return False
    return role != Role.USER or queue in tree.operated_by(user)


def may_see(
    tree: QueueTree, queue: QueueName, owner: UserName, user: UserName, role: Role
) -> bool:
    """Return whether the user may see the jobs of this owner in this queue.

    Args:
        role: Role of the token that the user presents, which may be lower than the
            user's own role.
    """
    if owner == user or operates(tree, queue, user, role):
        return True
    visibility = tree.visibility(queue)
    if visibility == Visibility.QUEUE:
        return role in LADDER and may_submit(tree.allowed(queue), user, role)
    return visibility == Visibility.ALL


def check_operator(before: QueueTree, after: QueueTree, user: UserName) -> None:
    """Refuse changes to queues that the user does not operate, and changes that exceed
    the limits of their parent queues.

    Raises: Forbidden.
    """
    abstract_set = before.operated_by(user)
    tops = {
        name for name in abstract_set if before.queue(name).parent not in abstract_set
    }
    for name in {*before.by_name, *after.by_name}:
        old_queue, new_queue = before.by_name.get(name), after.by_name.get(name)
        if old_queue == new_queue:
            continue
        moved = new_queue is not None and _is_moved(new_queue, old_queue, abstract_set)
        if moved or (old_queue is not None and name not in abstract_set):
            raise _forbidden_error(
                user,
                f"{user} may not change queue {name}: it is not below a queue that "
                f"{user} operates",
            )
        if name in tops and (
            old_queue is None
            or new_queue is None
            or _restore_settings(old_queue, new_queue) != old_queue
        ):
            raise _forbidden_error(
                user,
                f"operators of queue {name} may change only {', '.join(_setting_names())}",
            )
        if new_queue is not None and _is_wider(before, after, new_queue):
            raise _forbidden_error(
                user,
                f"queue {name} would be visible to more users than the queue above it",
            )
    if replace(after, queues=before.queues) != before:
        raise _forbidden_error(
            user, "only operators of the cluster may change the rules of all queues"
        )


def _is_moved(new: Queue, old: Queue | None, mine: Set[QueueName]) -> bool:
    """Return whether a new or moved queue has a parent queue that the user does not
    operate, or no parent. `mine`: the user's queues."""
    if old is not None and new.parent == old.parent:
        return False
    return new.parent is None or new.parent not in mine


def _restore_settings(old: Queue, new: Queue) -> Queue:
    """Return the new queue with the old values of the settings that its operators may
    change. It equals `old` if only these were changed."""
    return replace(new, **{name: getattr(old, name) for name in OWN_SETTINGS})


def _is_wider(before: QueueTree, after: QueueTree, queue: Queue) -> bool:
    if queue.parent is None or queue.visibility is None:
        return False
    above = _WIDER.index(after.visibility(queue.parent))
    known_queue = before.by_name.get(queue.name)
    if known_queue is not None and known_queue.visibility == queue.visibility:
        return False
    return _WIDER.index(queue.visibility) > above


def _setting_names() -> list[str]:
    return [
        name.replace("most_per_user_millis", "max_per_user") for name in OWN_SETTINGS
    ]


def _forbidden_error(user: UserName, message: str) -> Forbidden:
    return Forbidden(
        message,
        hint="ask an operator of the cluster to make the change; see: corral user show "
        f"{user}, corral queue ls",
    )
