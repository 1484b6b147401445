"""How users are kept apart on a node, by its inventory."""

from dataclasses import replace

from corral.domain.node import Liveness
from corral.domain.resources import Inventory
from corral.domain.user_isolation import (
    NAMES_MOST,
    Means,
    Surface,
    UserIsolation,
    names_text,
    separation_of,
    separations,
)
from tests.worlds import node


def found(containment: str, account: str = "") -> UserIsolation:
    return separation_of(Inventory(containment=containment, shared_account=account))


def test_accounts_and_a_cgroup_leave_the_network_alone_shared() -> None:
    assert found("cgroup") == UserIsolation(Means.OWN_ACCOUNTS, "", (Surface.PORTS,))
    assert Surface.GPUS in found("pid-namespace").shared


def test_a_batch_system_has_no_pid_namespace_for_an_attempt() -> None:
    shared = {Surface.ARGUMENTS, Surface.TEMPORARY_FILES, Surface.GPUS, Surface.PORTS}
    assert set(found("engine").shared) == shared


def test_one_account_keeps_nothing_apart() -> None:
    for containment in ("cgroup", "engine", "subreaper"):
        one = found(containment, "ann")
        assert (one.means, set(one.shared), one.is_kept) == (
            Means.ONE_ACCOUNT,
            set(Surface),
            False,
        )
        assert "run as ann" in one.text


def test_pods_keep_users_apart_but_for_claims_images_and_the_network() -> None:
    one = found("pod", "UID 1000")
    assert (one.means, one.is_kept) == (Means.PODS, True)
    assert "UID 1000" in one.text
    assert all(surface in one.text for surface in one.shared)
    assert not found("privileged-pod", "root").is_kept


def test_nodes_that_are_alike_are_told_together_and_silent_ones_are_not() -> None:
    names = ("n10", "n2", "n3")
    nodes = [node(name) for name in names]
    nodes[1] = replace(nodes[1], liveness=Liveness.DEAD)
    (ids,) = separations(nodes).values()
    assert ids == ["n3", "n10"]
    many = [f"n{number}" for number in range(NAMES_MOST + 2)]
    assert names_text(many) == "n0, n1, n2, n3, n4 and 2 more"
    assert names_text(many[:2]) == "n0, n1"
