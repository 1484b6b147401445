"""The account of an attempt's ranks, by the policy of the node."""

import asyncio
import os
import pwd
from pathlib import Path

import pytest

from corral.agent.settings import SettingsInvalid
from corral.agent.user_accounts import (
    AccountRefused,
    Accounts,
    early_account,
    load_policy,
)
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey, Phase
from corral.wire.node import NodeSettings
from corral.wire.node_policy import POLICY_FILE
from tests.agent.bench import NODE, bench, key_of, launch_of
from tests.agent.nodes import write_policy

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
UNKNOWN = "no-such-account"


async def number_of(_: AttemptKey) -> int:
    return 7


def accounts_in(folder: Path, policy: NodePolicy, **settings: str) -> Accounts:
    write_policy(folder, policy)
    own = NodeSettings(node=NODE, head_file="", **settings)  # type: ignore[arg-type]
    return Accounts(node_dir=folder, settings=own, machine_policy=folder / "none")


def refusal(accounts: Accounts, owner: str) -> str:
    with pytest.raises(AccountRefused) as refused:
        asyncio.run(accounts.of(launch_of(key_of(1), owner=owner), number_of))
    return f"{refused.value.message}; {refused.value.hint}"


@pytest.mark.root
@as_root
@pytest.mark.parametrize("owner", ["root", ""])
def test_root_runs_no_ranks_unless_the_nodes_own_file_says_so(
    tmp_path: Path, owner: str
) -> None:
    """A head that names no owner must not get root by that."""
    assert "no job run as root" in refusal(accounts_in(tmp_path, NodePolicy()), owner)
    allowed = accounts_in(tmp_path, NodePolicy(root="allow"))
    assert asyncio.run(allowed.of(launch_of(key_of(1), owner=owner), number_of)) is None


@pytest.mark.root
@as_root
def test_a_user_without_an_account_is_refused_and_the_inventory_says_so(
    tmp_path: Path,
) -> None:
    accounts = accounts_in(tmp_path, NodePolicy(root="allow"))
    said = refusal(accounts, UNKNOWN)
    assert said.startswith(
        f"node n1: the node has no account {UNKNOWN}; run on the node: useradd"
    )
    assert [user for user, _ in accounts.refused] == [UNKNOWN]
    write_policy(tmp_path, NodePolicy(root="allow", uid_range="200000-200009"))
    asyncio.run(accounts.look())
    assert accounts.refused == ()


@pytest.mark.root
@as_root
def test_accounts_of_named_users_are_looked_up_before_any_start(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path, NodePolicy(root="allow"))
    changes: list[tuple[str, ...]] = []
    accounts.changed = lambda: changes.append(
        tuple(user for user, _ in accounts.refused)
    )
    for users in (("root", UNKNOWN), ("root", UNKNOWN), ("root",), ("root", UNKNOWN)):
        asyncio.run(accounts.watch(users))
    assert changes == [(UNKNOWN,), (), (UNKNOWN,)]
    write_policy(tmp_path, NodePolicy(root="allow", uid_range="200000-200009"))
    asyncio.run(accounts.look())
    assert accounts.refused == ()


@pytest.mark.root
@as_root
async def test_the_inventory_names_users_without_an_account(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert not here.head.inventory.refused_users
        here.head.users = ("root", UNKNOWN)
        await here.until(lambda: UNKNOWN in dict(here.head.inventory.refused_users))
        here.head.users = ("root",)
        await here.until(lambda: UNKNOWN not in dict(here.head.inventory.refused_users))


@pytest.mark.root
@as_root
@pytest.mark.parametrize("owner", ["nobody", "daemon"])
def test_accounts_of_services_run_no_ranks(tmp_path: Path, owner: str) -> None:
    policy = NodePolicy(uid_range="200000-200009")
    assert f"denies the account {owner}" in refusal(
        accounts_in(tmp_path, policy), owner
    )


@pytest.mark.root
@as_root
def test_an_account_below_the_lowest_uid_of_people_runs_no_ranks(
    tmp_path: Path,
) -> None:
    games = pwd.getpwnam("games")
    assert f"has uid {games.pw_uid}, below" in refusal(
        accounts_in(tmp_path, NodePolicy()), "games"
    )
    low = accounts_in(tmp_path, NodePolicy(min_uid=1))
    account = asyncio.run(low.of(launch_of(key_of(1), owner="games"), number_of))
    assert account is not None
    assert account.uid == games.pw_uid


@pytest.mark.root
@as_root
def test_a_range_gives_each_user_an_account_and_a_home_of_its_own(
    tmp_path: Path,
) -> None:
    accounts = accounts_in(tmp_path, NodePolicy(uid_range="200000-200007"))
    account = asyncio.run(accounts.of(launch_of(key_of(1), owner=UNKNOWN), number_of))
    assert account is not None
    assert (account.name, account.uid, account.groups) == (UNKNOWN, 200007, (200007,))
    home = Path(account.home).stat()
    assert (home.st_uid, home.st_mode & 0o777) == (200007, 0o700)
    write_policy(tmp_path, NodePolicy(uid_range="200000-200006"))
    assert "no uid left" in refusal(accounts, UNKNOWN)


@pytest.mark.root
@as_root
def test_in_a_container_of_its_own_an_attempt_needs_no_account(tmp_path: Path) -> None:
    pod = accounts_in(tmp_path, NodePolicy(), containment="engine", isolation="none")
    account = asyncio.run(pod.of(launch_of(key_of(1), owner=UNKNOWN), number_of))
    assert account is not None
    assert account.name == "nobody"
    assert isinstance(early_account(UNKNOWN, is_container=True), dict)
    assert isinstance(early_account(UNKNOWN, is_container=False), str)


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ('{"root": "allow"}', 0o644, "can be read by other accounts"),
        ('{"rot": "allow"}', 0o600, "'rot' is not a field"),
        ('{"root": "yes"}', 0o600, "root"),
        ('{"uid_range": "5-9"}', 0o600, "uid_range"),
    ],
)
def test_a_policy_that_is_wrong_starts_nothing(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    (tmp_path / POLICY_FILE).write_text(text)
    (tmp_path / POLICY_FILE).chmod(mode)
    with pytest.raises(SettingsInvalid, match=says):
        load_policy(tmp_path, tmp_path / "none")


def test_the_policy_of_the_machine_counts_for_nodes_without_one(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text('{"deny": ["ann"]}')
    machine.chmod(0o644)
    assert load_policy(tmp_path, machine).deny == ("ann",)
    assert load_policy(tmp_path, tmp_path / "none").root == "refuse"


@pytest.mark.root
@as_root
async def test_a_refused_attempt_blames_the_policy_and_not_the_node(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as here:
        await here.head.want(1, run=(launch_of(key_of(1), owner=UNKNOWN),))
        await here.until(lambda: here.ranks.attempts)
        seen = here.ranks.attempts[key_of(1)]
        assert (seen.phase, seen.trouble_is_infra) == (Phase.REFUSED, True)
        assert seen.trouble_of == "the node's policy"
        await here.until(
            lambda: any(
                user == UNKNOWN for user, _ in here.agent.inventory_now.refused_users
            )
        )
        assert not here.ranks.launched
