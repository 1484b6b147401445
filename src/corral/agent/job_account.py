"""Accounts that ranks run as when the agent is root."""

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from corral.domain.node_policy import DEFAULT_MIN_UID, ROOT, NodePolicy, PolicyRefusal

SHELL: Final = "/bin/sh"
NOBODY: Final = "nobody"
# ranks of such an account run all the same
NO_LOGIN_SHELLS: Final = ("/nologin", "/false")
_LOGIN_DEFS: Final = Path("/etc/login.defs")
_UID_MIN: Final = re.compile(r"^\s*UID_MIN\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccount:
    """Account that ranks change to. `groups` has the main group first."""

    name: str
    uid: int
    groups: tuple[int, ...]
    home: str
    shell: str = SHELL

    @property
    def env(self) -> dict[str, str]:
        return {
            "USER": self.name,
            "LOGNAME": self.name,
            "HOME": self.home,
            "SHELL": self.shell,
        }


def account_from(record: Mapping[str, Any] | None) -> JobAccount | None:
    """Return the account in a shim's spec; None without one, when ranks run as the
    shim's account."""
    return (
        None
        if record is None
        else JobAccount(**{**record, "groups": tuple(record["groups"])})
    )


def account_in_system(name: str) -> JobAccount | None:
    """Return the machine's account of this name; None if the machine has none."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None
    groups = os.getgrouplist(name, entry.pw_gid)
    main_first = (entry.pw_gid, *(group for group in groups if group != entry.pw_gid))
    shell = SHELL if entry.pw_shell.endswith(NO_LOGIN_SHELLS) else entry.pw_shell
    return JobAccount(
        name=name, uid=entry.pw_uid, groups=main_first, home=entry.pw_dir, shell=shell
    )


def allowed_account(
    owner: str, policy: NodePolicy
) -> JobAccount | PolicyRefusal | None:
    """Return the machine's account under which a user's ranks run. Return a
    PolicyRefusal if the node's policy refuses it, or None if the machine has no such
    account. An attempt without an owner counts as root's."""
    account = account_in_system(owner or ROOT)
    if account is None:
        return None
    return (
        policy.refuses_account(account.name, account.uid, system_min_uid()) or account
    )


@lru_cache(maxsize=1)
def system_min_uid(login_defs: Path = _LOGIN_DEFS) -> int:
    """Return the lowest uid that the machine assigns to people."""
    try:
        match = _UID_MIN.search(login_defs.read_text())
    except OSError:
        match = None
    return int(match[1]) if match else DEFAULT_MIN_UID


def account_in_container(owner: str) -> JobAccount | None:
    """Return the account of ranks in a container that holds one attempt and runs as
    root; None if that account is root itself.

    The account is the owner's own if the image has it, and otherwise the least
    privileged one. No other user in the container needs protection from the ranks.
    """
    account = account_in_system(owner or ROOT)
    if account is None:
        account = account_in_system(NOBODY)
        if account is None:
            raise OSError(
                f"the image has neither an account {owner} nor an account {NOBODY}"
            )
        return JobAccount(
            name=NOBODY, uid=account.uid, groups=account.groups[:1], home="/tmp"
        )
    return None if account.uid == 0 else account
