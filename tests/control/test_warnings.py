"""Conditions of nodes are listed, the worst first, and a storm of them in few sentences."""

from dataclasses import replace

from corral.control.node_warnings import account_warnings, node_warnings
from corral.domain.node import Node
from corral.domain.node_fault import NodeCondition, Remedy, Restriction
from corral.domain.node_signal import SignalKind
from tests.worlds import node


def unhealthy(id: str, restriction: Restriction, *, suspect: bool = False) -> Node:
    one = NodeCondition(
        kind=SignalKind.XID,
        code=79,
        gpu=0,
        device="",
        text=f"XID 79 of {id}",
        since=1.0,
        last=1.0,
        remedy=Remedy.REBOOT,
        restriction=restriction,
    )
    return replace(node(id), conditions=(one,), suspect=suspect)


def test_the_condition_of_a_node_is_told_and_the_suspects_first() -> None:
    said = list(
        node_warnings(
            [
                unhealthy("n1", Restriction.AVOID),
                unhealthy("n2", Restriction.DRAIN, suspect=True),
            ]
        )
    )
    assert [warning.node for warning in said] == [
        "n2",
        "n1",
        None,
    ]


def test_a_storm_is_a_few_sentences_however_many_it_hits() -> None:
    said = list(
        node_warnings(
            [unhealthy(f"n{i}", Restriction.DRAIN, suspect=i > 75) for i in range(750)]
        )
    )
    assert len(said) == 7
    assert [warning.text for warning in said[-2:]] == [
        "745 more nodes have faults; run: corral node ls",
        "674 nodes have faults but are not cordoned automatically; to cordon now: "
        "corral node cordon --suspects",
    ]


def test_a_healthy_node_is_no_warning() -> None:
    assert list(node_warnings([node("n1"), unhealthy("n2", Restriction.OPEN)])) == []


def shared(id: str, account: str) -> Node:
    one = node(id)
    return replace(one, inventory=replace(one.inventory, shared_account=account))


def test_users_who_share_an_account_are_warned_by_node() -> None:
    nodes = [shared("n1", "ann"), shared("n2", ""), shared("n3", "ann")]
    assert list(account_warnings(nodes, users=1)) == []
    (said,) = account_warnings(nodes, users=2)
    assert said.text.startswith("on n1, n3: the ranks of all users run as ann: ")
