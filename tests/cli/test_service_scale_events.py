"""`corral why SERVICE`: the reasons of its last changes of the number of replicas."""

from corral.cli.service_text import WHY_EVENTS, why_lines
from corral.wire.api import EventView
from tests.cli.test_service_follow import view


def changed(number: int, text: str) -> EventView:
    return EventView(
        number=number,
        at=1_800_000_000.0 + number,
        kind="service_scaled",
        job="j1",
        node=None,
        attempt=None,
        text=text,
    )


def test_why_has_the_newest_changes_with_their_reasons() -> None:
    events = [changed(number, f"change {number}") for number in range(9)]
    lines = list(why_lines(view(scale_events=events), now=1.0))
    shown = [line for line in lines if "change" in line]
    assert len(shown) == WHY_EVENTS
    assert shown[0].endswith("change 4")
    assert shown[-1].endswith("change 8")
    assert shown[-1].startswith("  20")  # the date


def test_a_reason_cannot_write_to_the_terminal() -> None:
    lines = list(why_lines(view(scale_events=[changed(1, "a\x1b[2Jb")]), now=1.0))
    assert not any("\x1b" in line for line in lines)
