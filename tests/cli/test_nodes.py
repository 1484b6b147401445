"""What is shown of a node."""

import pytest

from corral.cli.node_faults import _REMEDY_TEXTS, show_conditions
from corral.cli.nodes import refused_text
from corral.domain.node_fault import Remedy, Restriction
from corral.wire.node_answers import NodeConditionView


def test_of_many_refused_users_the_first_has_a_reason_and_a_few_have_a_name() -> None:
    why = "the node has no account u00; run on the node: useradd u00"
    users = {f"u{number:02}": why for number in range(200)}
    assert refused_text({}) == ""
    assert refused_text({"u00": why}) == f"u00: {why}"
    assert refused_text({"u00": why, "u01": why}) == f"u00: {why}; also refused: u01"
    assert (
        refused_text(users)
        == f"u00: {why}; also refused: u01, u02, u03, u04, u05 and 194 more (for all, "
        "add --json)"
    )


def test_a_fault_says_in_words_what_the_node_is_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    conditions = [
        NodeConditionView(
            kind="xid",
            code=79,
            gpu=1,
            device="",
            text="XID 79",
            remedy="reboot",  # a code: the table has words for it
            restriction=restriction,
            count=1,
            since=0.0,
            last=0.0,
            mended_at=None,
            excused=False,
        )
        for restriction in Restriction
    ]
    show_conditions(conditions)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("reboot the node")[1].strip() for row in rows] == [
        "in use",
        "used last",
        "cordoned",
        "drained",
    ]


def test_every_remedy_has_words() -> None:
    assert _REMEDY_TEXTS.keys() == {remedy.value for remedy in Remedy}
