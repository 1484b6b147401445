"""Accounts of ranks, and whether they can reach the files in the cluster's directory."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Protocol

from corral.agent.job_account import JobAccount, account_in_system
from corral.boot.declared_settings import LOCAL
from corral.domain.users import Role


class Owner(Protocol):
    """A user, from the store or from an API response: name, role and whether disabled."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def disabled(self) -> bool: ...


def ranks_account(name: str) -> JobAccount | None:
    """Return the account to which this user's ranks switch; None if they keep the
    account of the agent.

    A user without an account on this machine gets a placeholder for any other uid, such
    as one from the uid range of a node's policy.
    """
    if os.geteuid() != 0:
        return None
    job_account = account_in_system(name) or JobAccount(
        name=name, uid=-1, groups=(), home=""
    )
    return None if job_account.uid == 0 else job_account


def kept_out(root: Path, engine: str, users: Iterable[Owner]) -> str:
    """Return one sentence that says which users' ranks have no access to the directory
    and how to give it; "" if all have access.

    Only the owner can open the directory itself, and a node opens it to its ranks
    (`agent.private_root`). The access to its parent folders depends on the machine.
    Nodes that another engine provides have their files elsewhere, so the result is ""
    for them.
    """
    if engine != LOCAL:
        return ""
    above = [*reversed(root.resolve().parents)]
    closed: set[Path] = set()
    excluded_users = []
    for name in (
        user.name for user in users if user.role != Role.VIEWER and not user.disabled
    ):
        with suppress(OSError):
            runs_as = ranks_account(name)
            walls = [
                path for path in above if runs_as and not _can_traverse(runs_as, path)
            ]
            closed.update(walls)
            if walls:
                excluded_users.append(name)
    if not excluded_users:
        return ""
    walls = sorted(closed)
    more = len(excluded_users) - 3
    ranks = ", ".join(excluded_users[:3]) + (f" and {more} more" if more > 0 else "")
    walls_clause = (
        f"{' and '.join(map(str, walls))} {'are' if len(walls) > 1 else 'is'}"
    )
    return (
        f"ranks of {ranks} cannot reach their files in {root}: {walls_clause} closed to "
        "other accounts; "
        f"run: chmod o+x {' '.join(quote(str(wall)) for wall in walls)}"
    )


def _can_traverse(runs_as: JobAccount, folder: Path) -> bool:
    folder_stat = os.stat(folder)
    if folder_stat.st_uid == runs_as.uid:
        return bool(folder_stat.st_mode & stat.S_IXUSR)
    if folder_stat.st_gid in runs_as.groups:
        return bool(folder_stat.st_mode & stat.S_IXGRP)
    return bool(folder_stat.st_mode & stat.S_IXOTH)
