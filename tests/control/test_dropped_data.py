"""What is told of data from nodes that is dropped, or delayed."""

from corral.control.dropped_data import DroppedData
from corral.domain.ids import NodeId

NODE = NodeId("n1")


def test_invalid_data_is_dropped_and_too_much_of_it_is_delayed() -> None:
    dropped = DroppedData()
    assert dropped.note(NODE, "sample", "the CPU share is negative", at=1.0)
    assert dropped.note(NODE, "heartbeat", "too many", at=2.0, count=3, is_late=True)
    assert [event.text for event in dropped.take_events()] == [
        "node n1 sent invalid data (sample), which was dropped: the CPU share is "
        "negative",
        "data of node n1 (heartbeat) was delayed (3 times): too many",
    ]
    (warning,) = dropped.warnings(3.0)
    assert warning.text == (
        "node n1 sends too much data, which is delayed; the last (heartbeat): too many; "
        "run: corral node show n1"
    )
    dropped.note(NODE, "sample", "the CPU share is negative", at=4.0)
    (warning,) = dropped.warnings(5.0)
    assert "sends invalid data, which is dropped; the last (sample)" in warning.text
