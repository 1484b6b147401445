"""Access list of a queue: names of users, and @ROLE for all users with that role or a
higher one.

Operators and admins may always submit, because they set the list.
"""

from collections.abc import Sequence
from typing import Final

from corral.domain.ids import UserName, is_name
from corral.domain.users import LADDER, Role

MARK: Final = "@"  # before a role; no name of a user begins with it
ROLES: Final = tuple(f"{MARK}{role}" for role in LADDER if role != Role.VIEWER)
Allowed = tuple[str, ...]


def is_allowable(text: str) -> bool:
    """Return whether the text may stand in an access list: it is the name of a role, or
    a valid user name."""
    return text in ROLES or is_name(text)


def may_submit(allow: Allowed | None, user: UserName, role: Role) -> bool:
    """Return whether the list allows the user to submit. Without a list (None), all
    users may."""
    if allow is None or user in allow or not _is_below(role, Role.OPERATOR):
        return True
    return any(
        not _is_below(role, allowed_role) for allowed_role in _allowed_roles(allow)
    )


def users_of(allow: Allowed | None) -> list[UserName]:
    """Return the users that are named directly."""
    return [UserName(name) for name in allow or () if name not in ROLES]


def who_text(allow: Sequence[str]) -> str:
    """Return a text of who may submit. For example: alice, bob and operators."""
    user_names = [name for name in allow if name != f"{MARK}{Role.OPERATOR}"]
    return f"{', '.join(user_names)} and operators" if user_names else "operators"


def _allowed_roles(allow: Allowed) -> list[Role]:
    return [
        Role(role_text.removeprefix(MARK)) for role_text in allow if role_text in ROLES
    ]


def _is_below(one: Role, other: Role) -> bool:
    return LADDER.index(one) < LADDER.index(other)
