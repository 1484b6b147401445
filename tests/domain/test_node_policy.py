"""What a node's own policy allows: accounts, uids, images and paths."""

import pytest

from corral.domain.node_policy import NodePolicy, UidRange, full_reference, image_file

MIN_UID = 1000


@pytest.mark.parametrize(
    ("name", "uid", "policy", "says"),
    [
        ("alice", 1000, NodePolicy(), None),
        ("alice", 999, NodePolicy(), "below the lowest allowed uid 1000"),
        ("alice", 999, NodePolicy(min_uid=500), None),
        ("munge", 2000, NodePolicy(), "denies the account munge"),
        ("postgres", 1200, NodePolicy(deny=()), None),
        ("root", 0, NodePolicy(), "no job run as root"),
        ("root", 0, NodePolicy(root="allow"), None),
        ("toor", 0, NodePolicy(root="allow"), "no job run as root"),
        ("nobody", 65534, NodePolicy(), "denies the account nobody"),
    ],
)
def test_the_node_decides_which_accounts_ranks_may_run_as(
    name: str, uid: int, policy: NodePolicy, says: str | None
) -> None:
    refusal = policy.refuses_account(name, uid, MIN_UID)
    assert (refusal is None) == (says is None)
    assert says is None or says in str(refusal)


def test_a_user_without_an_account_is_refused_unless_the_node_has_a_range_of_uids() -> (
    None
):
    refusal = NodePolicy().refuses_unknown("alice")
    assert refusal is not None
    assert refusal.why == "the node has no account alice"
    assert "useradd alice" in refusal.hint
    mapped = NodePolicy(uid_range="200000-200009")
    assert mapped.refuses_unknown("alice") is None
    assert mapped.refuses_unknown("root") is not None
    assert mapped.refuses_unknown("munge") is not None
    assert mapped.uids == UidRange(200000, 200009)
    assert [mapped.uids.uid(number) for number in (0, 9, 10, -1)] == [
        200000,
        200009,
        None,
        None,
    ]


@pytest.mark.parametrize(
    "text", ["1-5", "200000", "200009-200000", "a-b", "0-65535", "2000-9999999999"]
)
def test_a_range_that_holds_accounts_of_the_machine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uid_range"):
        NodePolicy(uid_range=text)


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ("ubuntu", "docker.io/library/ubuntu"),
        ("ubuntu:24.04", "docker.io/library/ubuntu"),
        ("pytorch/pytorch:2.8", "docker.io/pytorch/pytorch"),
        ("docker://ghcr.io/team/x@sha256:00", "ghcr.io/team/x"),
        ("localhost:5000/x:1", "localhost:5000/x"),
        ("containers-storage:ghcr.io/team/x", "containers-storage:ghcr.io/team/x"),
    ],
)
def test_an_image_reference_in_full(image: str, reference: str) -> None:
    assert full_reference(image) == reference
    assert image_file(image) is None


@pytest.mark.parametrize(
    ("image", "file"),
    [
        ("/data/x.sif", "/data/x.sif"),
        ("docker-archive:/data/x.tar:name", "/data/x.tar"),
        ("oci-archive:/data/x.tar", "/data/x.tar"),
        ("dir:/data/a:b", "/data/a:b"),
    ],
)
def test_the_file_of_an_image(image: str, file: str) -> None:
    assert image_file(image) == file


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("ghcr.io/team/x:1", True),
        ("ghcr.io/teammate/x:1", False),
        ("ubuntu:24.04", False),
        ("nvcr.io/nvidia/pytorch:25.01", True),
        ("containers-storage:ghcr.io/team/x", False),
        ("oci-archive:/images/x.tar", True),
        ("oci-archive:/images/../etc/shadow", False),
        ("/home/x.sif", False),
    ],
)
def test_images_are_limited_to_registries_and_paths(image: str, allowed: bool) -> None:
    policy = NodePolicy(
        registries=("ghcr.io/team", "nvcr.io/"), host_paths=("/images",)
    )
    assert (policy.refuses_image(image) is None) == allowed
    assert NodePolicy().refuses_image(image) is None
