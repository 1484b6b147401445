"""What the nodes of a machine are labelled with."""

import pytest

from corral.domain.errors import SpecInvalid
from corral.engines.local.labels import labels_of_nodes


def test_a_label_is_of_all_nodes_or_of_one_and_a_later_one_wins() -> None:
    found = labels_of_nodes(3, ["zone=a", "n2:zone=b", "nvme"], None)
    assert [dict(one) for one in found] == [
        {"zone": "a", "nvme": "true"},
        {"zone": "b", "nvme": "true"},
        {"zone": "a", "nvme": "true"},
    ]


def test_a_topology_divides_the_nodes_in_order_into_equal_parts() -> None:
    found = labels_of_nodes(4, ["n4:rack=far"], "racks=2,pods=1,nvlink=4")
    assert [dict(one) for one in found] == [
        {"rack": "r1", "pod": "p1", "nvlink": "d1"},
        {"rack": "r1", "pod": "p1", "nvlink": "d2"},
        {"rack": "r2", "pod": "p1", "nvlink": "d3"},
        {"rack": "far", "pod": "p1", "nvlink": "d4"},
    ]
    assert [dict(one)["rack"] for one in labels_of_nodes(5, [], "rack=2")] == [
        "r1", "r1", "r1", "r2", "r2"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "topology", "told"),
    [
        (["a b=c"], None, "is not a valid label"),
        (["=c"], None, "is not a valid label"),
        (["zone="], None, "is not a valid label"),
        (["n9:zone=a"], None, "no node n9"),
        (["node=n1"], None, "reserved for the name of the node"),
        ([], "rows=2", "'rows=2' is not of the form racks=N"),
        ([], "racks=3", "'racks=3' is not valid with --nodes 2"),
        ([], "racks=0", "'racks=0' is not valid with --nodes 2"),
        ([], "racks=2,", "'' is not of the form racks=N"),
    ],
)
def test_what_is_no_label_is_refused(
    texts: list[str], topology: str | None, told: str
) -> None:
    with pytest.raises(SpecInvalid, match=told) as refused:
        labels_of_nodes(2, texts, topology)
    assert refused.value.hint
