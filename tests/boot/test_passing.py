"""Who does not get to the cluster's directory, and so is not told of a thing that hurts
nobody."""

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.boot.directory_access import kept_out
from corral.domain.ids import UserName
from corral.domain.users import Role, User


def user(name: str, role: Role = Role.USER, *, disabled: bool = False) -> User:
    return User(name=UserName(name), role=role, created_at=0.0, disabled=disabled)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster's directory, for a head that root started, in a folder closed to
    others."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with tempfile.TemporaryDirectory(prefix="corral-passing-") as folder:
        root = Path(folder) / "of root" / "cluster"
        root.mkdir(parents=True)
        Path(folder).chmod(0o755)
        root.parent.chmod(0o700)
        yield root


def test_the_folder_in_the_way_is_named_and_once_others_pass_nothing_is_said(
    place: Path,
) -> None:
    wall = place.parent
    said = kept_out(place, "local", [user("ann"), user("root"), user("bob")])
    assert said == (
        f"ranks of ann, bob cannot reach their files in {place}: {wall} is closed to other "
        f"accounts; run: chmod o+x '{wall}'"
    )
    wall.chmod(0o711)
    assert kept_out(place, "local", [user("ann")]) == ""


def test_who_has_no_ranks_or_runs_as_the_head_does_is_kept_from_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_of_root = [user("root", Role.ADMIN)]
    no_ranks = [user("ann", Role.VIEWER), user("bob", disabled=True)]
    assert kept_out(place, "local", [*ranks_of_root, *no_ranks]) == ""
    # its nodes' files lie elsewhere
    assert kept_out(place, "slurm", [user("ann")]) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert kept_out(place, "local", [user("ann")]) == ""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to a group")
def test_a_folder_open_to_the_accounts_group_lets_it_pass(place: Path) -> None:
    os.chown(place.parent, -1, pwd.getpwnam("games").pw_gid)
    place.parent.chmod(0o710)
    assert kept_out(place, "local", [user("games")]) == ""
    assert "ranks of ann cannot" in kept_out(
        place, "local", [user("games"), user("ann")]
    )
