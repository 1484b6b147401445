"""What a machine must have before it joins a cluster on Ray."""

import stat
from pathlib import Path

import pytest

from corral.boot.join_ray import check, check_machine, write
from corral.boot.settings import ClusterSettings
from corral.domain.errors import Conflict, SpecInvalid
from corral.engines.ray import member
from corral.engines.ray.member import RayMember
from corral.wire.joining import JoinNeeds, RayInvitation

NEEDS = JoinNeeds(engine="ray", ray="2.60.0", python="3.11.2")
INVITATION = RayInvitation(address="10.0.0.1:7000", token="secret", folder="/n/w1")


@pytest.mark.parametrize(
    ("here", "says", "to_do"),
    [
        (
            ("", "3.11.2"),
            "Ray is not installed on this machine",
            "pip install 'corral[ray]' 'ray==2.60.0'",
        ),
        (("2.59.0", "3.11.2"), "this machine has Ray 2.59.0", "ray==2.60.0"),
        (("2.60.0", "3.11.4"), "this machine has 3.11.4", "Python 3.11.2"),
    ],
    ids=["no ray", "other ray", "other python"],
)
def test_a_machine_that_ray_would_not_let_in_is_refused_before_it_asks(
    here: tuple[str, str], says: str, to_do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "versions", lambda: here)
    with pytest.raises(Conflict, match=says) as refused:
        check(NEEDS)
    assert to_do in (refused.value.hint or "")
    monkeypatch.setattr(member, "versions", lambda: ("2.60.0", "3.11.2"))
    check(NEEDS)


def test_what_all_nodes_see_is_not_for_one_machine_to_say() -> None:
    with pytest.raises(SpecInvalid, match="shared directories are set on the head"):
        check_machine(ClusterSettings(shared=("/data",)))


def test_a_machines_labels_and_pretended_gpus_are_labels_of_its_ray_node(
    tmp_path: Path,
) -> None:
    machine = ClusterSettings(
        gpus=2, gpu_type="a100", pretend=True, labels=("rack=r1",)
    )
    write(tmp_path / "ray", "w1", INVITATION, machine, "")
    made = RayMember.load(tmp_path / "ray")
    assert made.labels == {"corral.node": "w1", "rack": "r1", "corral.pretend": "a100"}
    assert (made.address, made.num_gpus) == ("10.0.0.1:7000", 2)
    token = tmp_path / "ray" / "token"
    assert token.read_text() == "secret"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_gpus_that_are_real_are_counted_by_ray_unless_told(tmp_path: Path) -> None:
    write(tmp_path / "ray", "w1", INVITATION, ClusterSettings(), "10.0.0.7")
    made = RayMember.load(tmp_path / "ray")
    assert (made.num_gpus, made.host, "corral.pretend" in made.labels) == (
        None,
        "10.0.0.7",
        False,
    )
