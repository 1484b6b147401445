"""Accounts of users on a node, as policy.json defines them.

The file is read again for each start, so that a change takes effect at once. The node's
inventory reports each user without an account, so that no job of such a user waits for
the node.
"""

import asyncio
import os
import pwd
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.agent.job_account import (
    JobAccount,
    account_in_container,
    allowed_account,
)
from corral.agent.settings import SettingsInvalid, private_file
from corral.domain.desired_state import Launch
from corral.domain.errors import CorralError
from corral.domain.errors import Refusal as RefusalError
from corral.domain.node_policy import ROOT, NodePolicy, PolicyRefusal
from corral.domain.observed_state import AttemptKey
from corral.wire.node import NodeSettings
from corral.wire.node_policy import POLICY_FILE, decode_policy
from corral.wire.shim_launch import ENGINE

MACHINE_POLICY: Final = Path("/etc/corral") / POLICY_FILE
DEFAULT: Final = NodePolicy()
# a batch system that lends a node as root trusts its root
LENT: Final = NodePolicy(root="allow")
HOMES: Final = "homes"  # in the node's folder: home folders of users without an account
MOST_REFUSED: Final = 1000  # users that an inventory names
Number = Callable[[AttemptKey], Awaitable[int]]


class AccountRefused(RefusalError):
    """The node's policy does not allow ranks to run as this user."""

    code = "account_refused"


def load_policy(
    node_dir: Path, machine: Path = MACHINE_POLICY, default: NodePolicy = DEFAULT
) -> NodePolicy:
    """Return the node's policy, else that of its machine, else the default.

    Raises: SettingsInvalid when the file is wrong, or other accounts may write it.
    """
    for file in (node_dir / POLICY_FILE, machine):
        if file.exists():
            try:
                return decode_policy(private_file(file, may_be_read=file == machine))
            except ValueError as wrong:
                raise SettingsInvalid(
                    f"{file} does not contain a valid node policy: {wrong}",
                    hint="correct the file; docs/guides/node-policy.md lists the fields",
                ) from wrong
    return default


def early_account(owner: str, *, is_container: bool) -> dict[str, Any] | None | str:
    """Return the account of the ranks in a part of a node, which serves one attempt,
    before the part's agent runs. The result is the account as a dictionary for a shim's
    spec; None for the current account; or, if the agent must decide, a text with the
    reason."""
    try:
        if is_container:
            account: JobAccount | PolicyRefusal | None = account_in_container(owner)
            return None if account is None else asdict(account)
        account = allowed_account(owner, load_policy(Path(), default=LENT))
    except (CorralError, OSError) as trouble:
        return str(trouble)
    if not isinstance(account, JobAccount):
        return str(account)
    return None if account.uid == 0 else asdict(account)


@dataclass(slots=True, kw_only=True)
class Accounts:
    """The accounts under which ranks of each user run on one node.

    Args:
        changed: called when `refused` has changed.
    """

    node_dir: Path
    settings: NodeSettings
    changed: Callable[[], None] = lambda: None
    machine_policy: Path = MACHINE_POLICY
    _refused: dict[str, str] = field(default_factory=dict)
    _watched: frozenset[str] = frozenset()

    @property
    def shared_account(self) -> str:
        """Return the agent's account, under which the ranks of all users run; "" if
        each user has an account."""
        if os.geteuid() == 0:
            return ""
        with suppress(KeyError):
            return pwd.getpwuid(os.geteuid()).pw_name
        return str(os.geteuid())

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """Return the users whose ranks cannot run on this node, each with the reason."""
        return tuple(sorted(self._refused.items()))[:MOST_REFUSED]

    def policy(self) -> NodePolicy:
        """Return the policy from the current content of its file. Raises:
        SettingsInvalid when the file is wrong, or other accounts may write it."""
        default = LENT if self.settings.containment == ENGINE else DEFAULT
        return load_policy(self.node_dir, self.machine_policy, default)

    async def look(self) -> None:
        """Look up the accounts of root and of each refused user again, because an
        account may have been created meanwhile."""
        await self._look_at((ROOT, *self._refused))

    async def watch(self, users: Collection[str]) -> None:
        """Look up the accounts of those users who were not in the previous call's list,
        and forget users who are gone from it. A user without an account is thus known
        before the first start."""
        new_users = [user for user in users if user not in self._watched]
        removed_users, self._watched = self._watched - {*users}, frozenset(users)
        previous_refusals = self.refused
        for user in removed_users:
            self._refused.pop(user, None)
        await self._look_at(new_users)
        if self.refused != previous_refusals:
            self.changed()

    async def _look_at(self, users: Collection[str]) -> None:
        """Look up whether the node has accounts for these users. The lookup runs in a
        thread, because a directory service may be slow."""
        if os.geteuid() != 0 or self._is_container:
            return
        refusals = await asyncio.to_thread(
            lambda: {user: self._refusal_of(user) for user in users}
        )
        for user, reason in refusals.items():
            if reason:
                self._refused[user] = reason
            else:
                self._refused.pop(user, None)

    async def of(self, launch: Launch, number: Number) -> JobAccount | None:
        """Return the account for the ranks of this launch; None if they run under the
        agent's own account.

        Args:
            number: asks the head for the number of the attempt's owner in the cluster.

        Raises: AccountRefused; SettingsInvalid for a wrong policy.json; OSError.
        """
        if os.geteuid() != 0:
            return None
        owner = launch.owner or ROOT
        if self._is_container:
            return await asyncio.to_thread(account_in_container, owner)
        policy = self.policy()
        # a directory service may take its time
        account = await asyncio.to_thread(allowed_account, owner, policy)
        if account is None:
            account = policy.refuses_unknown(owner) or await self._account_from_range(
                launch, policy, number
            )
        if isinstance(account, PolicyRefusal):
            raise self._account_refusal(owner, account)
        if self._refused.pop(owner, None) is not None:
            self.changed()
        return None if account.uid == 0 else account

    @property
    def _is_container(self) -> bool:
        """Return whether this node is a container, whose root file system and accounts
        serve one attempt alone."""
        return self.settings.containment == ENGINE and self.settings.isolation == "none"

    def _refusal_of(self, user: str) -> str:
        try:
            policy = self.policy()
        except SettingsInvalid as wrong:
            return str(wrong)
        account = allowed_account(user, policy)
        if account is None:
            account = policy.refuses_unknown(user)
        return self._refusal_text(account) if isinstance(account, PolicyRefusal) else ""

    def _account_refusal(self, owner: str, refusal: PolicyRefusal) -> AccountRefused:
        reason = self._refusal_text(refusal)
        if self._refused.get(owner) != reason:
            self._refused[owner] = reason
            self.changed()
        return AccountRefused(
            f"node {self.settings.node}: {refusal.why}", hint=refusal.hint
        )

    def _refusal_text(self, refusal: PolicyRefusal) -> str:
        return f"{refusal.why}; {refusal.hint}"

    async def _account_from_range(
        self, launch: Launch, policy: NodePolicy, number: Number
    ) -> JobAccount | PolicyRefusal:
        """Return an account for the user from the policy's uid range, or the reason why
        none is available. The uid is the same on every node with the same range.
        Raises: OSError."""
        assert policy.uids is not None
        uid = policy.uids.uid(await number(launch.key))
        if uid is None:
            return PolicyRefusal(
                f"the node's uid_range {policy.uids} has no uid left for {launch.owner}",
                "set a longer uid_range in the node's policy.json",
            )
        with suppress(KeyError):
            account_name = pwd.getpwuid(uid).pw_name
            return PolicyRefusal(
                f"uid {uid} in the node's uid_range {policy.uids} belongs to the account "
                f"{account_name}",
                "set a uid_range without existing accounts in the node's policy.json",
            )
        home = await asyncio.to_thread(self._prepare_home, uid)
        return JobAccount(name=launch.owner, uid=uid, groups=(uid,), home=str(home))

    def _prepare_home(self, uid: int) -> Path:
        """Create the home folder of this uid, which no other user may enter, and return
        its path. Raises: OSError."""
        homes = self.node_dir / HOMES
        homes.mkdir(mode=0o711, exist_ok=True)
        homes.chmod(0o711)
        home = homes / str(uid)
        home.mkdir(mode=0o700, exist_ok=True)
        if home.lstat().st_uid != uid:
            os.chown(home, uid, uid, follow_symlinks=False)
        return home
